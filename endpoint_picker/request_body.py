"""The prompt in the JSON body of a request, in OpenAI's or Anthropic's form.

Where no tokenizer is at hand, a prompt is cut into blocks as text, of which four bytes count as a token; only prompts
of token ids are cut as the engine cuts them. Equal digests mean equal beginnings.
"""

import asyncio
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from fairlead.token_ids import TOKEN_BYTES, pack_ids
from serving.blocks import DIGEST_BYTES, chain, root_seed
from serving.service_tiers import FLEX

PIECE = 64 * 1024  # bytes that are hashed at a time, about; between pieces other requests have a turn
# A body of more objects, strings or token ids is a prompt as it stands. So a body costs little more time than a text of
# its length does, which is what decides about the time that other requests wait.
MOST_OBJECTS = 32 * 1024
MOST_IDS = 1024 * 1024
TokenIds = list[Annotated[int, msgspec.Meta(ge=0, lt=2**32)]]


class _Part(msgspec.Struct):
    """A part of a message: a text, or what is hashed as it is written."""

    text: str = ""
    image_url: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()
    input_audio: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[str | _Part] | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Body(msgspec.Struct):
    """What bodies of chats, completions, responses, embeddings and Anthropic's messages have of a prompt."""

    model: str = ""
    tools: msgspec.Raw = msgspec.Raw()
    system: str | list[str | _Part] | None = None
    instructions: str | None = None
    messages: list[_Message] = []
    prompt: msgspec.Raw = msgspec.Raw()
    input: str | list[str | _Message] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    cache_salt: str | None = None
    service_tier: msgspec.Raw = msgspec.Raw()


class Prompt(NamedTuple):
    """A prompt as bytes of which TOKEN_BYTES count as a token; `most_output` is the request's own limit, in tokens.

    `root` is the seed of its first block; `is_background` means that its body asks for the background class.
    """

    packed: bytes = b""
    root: int = 0
    most_output: int | None = None
    is_background: bool = False

    @property
    def tokens(self) -> int:
        """The length of the prompt in tokens, as estimated."""
        return len(self.packed) // TOKEN_BYTES

    async def digests(self, block_tokens: int) -> bytes:
        """Return the packed digests of the prompt's full blocks; other tasks run between pieces of a long prompt."""
        digests, seed = bytearray(), self.root
        size = block_tokens * TOKEN_BYTES
        piece = max(1, PIECE // size) * size
        for start in range(0, len(self.packed), piece):
            if start:
                await asyncio.sleep(0)
            digests += chain(self.packed[start : start + piece], block_tokens, seed)
            seed = int.from_bytes(digests[-DIGEST_BYTES:], "little")
        return bytes(digests)


_decoder = msgspec.json.Decoder(_Body)
_ids_decoder = msgspec.json.Decoder(TokenIds)


def prompt_of(body: bytes) -> Prompt:
    """Return the prompt in `body`. A body of another form is a prompt as it stands, without a model."""
    try:
        if has_many_parts(body):
            raise msgspec.DecodeError("too many parts")
        given = _decoder.decode(body)
        packed = token_ids(given.prompt) or "\0".join(_texts(given)).encode()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Prompt(body, root_seed("text", "", ""))
    limits = [given.max_tokens, given.max_completion_tokens, given.max_output_tokens]
    return Prompt(
        packed,
        root_seed("text", given.model, given.cache_salt or ""),
        min((limit for limit in limits if limit is not None and limit >= 0), default=None),
        bytes(given.service_tier) == msgspec.json.encode(FLEX),
    )


def has_many_parts(body: bytes) -> bool:
    """Return whether JSON has more objects or strings than it is worth to read; braces within texts count, too."""
    strings = (body.count(b'"') - body.count(b'\\"')) // 2
    return max(body.count(b"{"), strings) > MOST_OBJECTS


def token_ids(prompt: msgspec.Raw) -> bytes:
    """Return the packed token ids of a prompt that is given as such, else nothing."""
    text = bytes(prompt)
    if not text.startswith(b"[") or text.count(b",") >= MOST_IDS:
        return b""
    try:
        return pack_ids(_ids_decoder.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return b""


def _prompt_text(prompt: msgspec.Raw) -> str:
    """Return a text or several as such, and anything else as it is written."""
    text = bytes(prompt)
    try:
        given = msgspec.json.decode(text, type=str | list[str])
    except msgspec.DecodeError:
        return text.decode()
    return given if isinstance(given, str) else "\0".join(given)


def _texts(body: _Body) -> Iterator[str]:
    """Yield the texts of a prompt in the order in which templates put them: tools, system, conversation."""
    yield from _raw(body.tools)
    yield from _content(body.system)
    yield from _content(body.instructions)
    yield _prompt_text(body.prompt)
    for message in (*body.messages, *(body.input if isinstance(body.input, list) else [body.input or ""])):
        if isinstance(message, str):
            yield message
            continue
        yield message.role
        yield from _content(message.content)
        yield from _raw(message.tool_calls)


def _content(content: str | list[str | _Part] | None) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content or ""]:
        if isinstance(part, str):
            yield part
            continue
        yield part.text
        for raw in (part.image_url, part.source, part.input_audio, part.input, part.content):
            yield from _raw(raw)


def _raw(raw: msgspec.Raw) -> Iterator[str]:
    if text := bytes(raw):
        yield text.decode()

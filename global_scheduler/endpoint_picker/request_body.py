"""The prompt in the JSON body of a request, in OpenAI's or Anthropic's form.

Where no tokenizer is at hand, a prompt is cut into blocks as text, of which four bytes count as a token; only prompts
of token ids are cut as the engine cuts them. Equal digests mean equal beginnings.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fairlead.token_ids import TOKEN_BYTES, pack_ids
from serving.blocks import DIGEST_BYTES, chain, root_seed

PIECE = 64 * 1024  # bytes that are hashed at a time, about; between pieces other requests have a turn


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
    prompt: Any = None
    input: str | list[str | _Message] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    cache_salt: str | None = None


class Prompt(NamedTuple):
    """A prompt as bytes of which TOKEN_BYTES count as a token; `most_output` is the request's own limit, in tokens.

    `root` is the seed of its first block.
    """

    packed: bytes = b""
    root: int = 0
    most_output: int | None = None

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


def prompt_of(body: bytes) -> Prompt:
    """Return the prompt in `body`. A body of another form is a prompt as it stands, without a model."""
    try:
        given = _decoder.decode(body)
        packed = token_ids(given.prompt) or "\0".join(_texts(given)).encode()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Prompt(body, root_seed("text", "", ""))
    limits = [given.max_tokens, given.max_completion_tokens, given.max_output_tokens]
    return Prompt(
        packed,
        root_seed("text", given.model, given.cache_salt or ""),
        min((limit for limit in limits if limit is not None and limit >= 0), default=None),
    )


def token_ids(prompt: Any) -> bytes:
    """Return the packed token ids of a prompt that is given as such, else nothing."""
    if isinstance(prompt, list) and prompt and all(type(each) is int and 0 <= each < 2**32 for each in prompt):
        return pack_ids(prompt)
    return b""


def _texts(body: _Body) -> Iterator[str]:
    """Yield the texts of a prompt in the order in which templates put them: tools, system, conversation."""
    yield from _raw(body.tools)
    yield from _content(body.system)
    yield from _content(body.instructions)
    yield from map(str, body.prompt if isinstance(body.prompt, list) else [body.prompt or ""])
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

"""Prompts as the engines tokenize them, so that their blocks are those of which engines report events."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

import msgspec

from endpoint_picker.request_body import Prompt, TokenIds, has_many_parts, prompt_of, token_ids
from fairlead.token_ids import pack_ids
from serving.blocks import root_seed
from serving.http_client import HttpClient

log = logging.getLogger(__name__)
PromptReader = Callable[[bytes], Awaitable[Prompt]]
TOKENIZE = "/tokenize"  # where vLLM and SGLang answer
CALL_SECONDS = 1.0
REST_SECONDS = 5.0  # after a call that failed, in which prompts are read as text
MOST_BYTES = 64 * 1024 * 1024  # of an answer


class _Fields(msgspec.Struct):
    """The fields of a request that determine the tokens of its prompt, in vLLM's call."""

    model: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    add_generation_prompt: msgspec.Raw = msgspec.Raw()
    continue_final_message: msgspec.Raw = msgspec.Raw()
    add_special_tokens: msgspec.Raw = msgspec.Raw()
    chat_template: msgspec.Raw = msgspec.Raw()
    chat_template_kwargs: msgspec.Raw = msgspec.Raw()


class _Request(_Fields):
    system: msgspec.Raw = msgspec.Raw()  # Anthropic's
    cache_salt: str | None = None


class TokenizedPrompt(msgspec.Struct):
    """An engine answers with token ids."""

    tokens: TokenIds


_decoder = msgspec.json.Decoder(_Request)


def token_root(scope: str) -> int:
    """Return the seed of the first block of token ids in a cache scope; events do not tell the name of their model."""
    return root_seed("tokens", "", scope)


async def read_text(body: bytes) -> Prompt:
    """Return the prompt in `body` without asking anybody."""
    return prompt_of(body)


class TokenPrompts:
    """Asks the `endpoints`, one after the other, for the tokens of prompts that are texts or chats.

    A prompt that no engine tokenizes is read as text. It is found again only while requests with it are open.
    """

    def __init__(self, endpoints: Callable[[], list[str]]) -> None:
        self._endpoints = endpoints
        self._turns = itertools.count()
        self._rests_until = 0.0  # time of the event loop

    async def read(self, body: bytes) -> Prompt:
        prompt = prompt_of(body)
        if has_many_parts(body):
            return prompt
        try:
            given = _decoder.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return prompt
        packed = token_ids(given.prompt) or pack_ids(await self._tokens(given))
        return prompt._replace(packed=packed, root=token_root(given.cache_salt or "")) if packed else prompt

    async def _tokens(self, given: _Request) -> list[int]:
        """Return the token ids of a text or a chat; nothing where they are not known."""
        loop, endpoints = asyncio.get_running_loop(), self._endpoints()
        text, messages = bytes(given.prompt), bytes(given.messages)
        is_askable = text.startswith(b'"') or (messages and text in (b"", b"null") and not bytes(given.system))
        if not is_askable or not endpoints or loop.time() < self._rests_until:
            return []
        client = HttpClient(endpoints[next(self._turns) % len(endpoints)])
        named = ((name, getattr(given, name)) for name in _Fields.__struct_fields__)
        asked = msgspec.json.encode({name: value for name, value in named if bytes(value)})
        try:
            async with asyncio.timeout(CALL_SECONDS), client.call("POST", TOKENIZE, asked) as response:
                body = await response.body(MOST_BYTES)
                if response.status == 200:
                    return msgspec.json.decode(body, type=TokenizedPrompt).tokens
                log.debug("a prompt is not tokenized", extra={"status": response.status, "answer": body[:200]})
        except (OSError, msgspec.DecodeError) as error:
            self._rests_until = loop.time() + REST_SECONDS
            log.warning("prompts are not tokenized", extra={"error": repr(error)})
        return []

"""Prompts as the engines tokenize them, so that their blocks are those of which engines report events."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from fairlead.token_ids import pack_ids
from global_scheduler.endpoint_picker.request_body import Prompt, prompt_of, token_ids
from serving.blocks import root_seed
from serving.http_client import HttpClient

log = logging.getLogger(__name__)
PromptReader = Callable[[bytes], Awaitable[Prompt]]
CALL_SECONDS = 1.0
REST_SECONDS = 5.0  # after a call that failed, in which prompts are read as text
MOST_BYTES = 64 * 1024 * 1024  # of an answer
# What of a request says which tokens its prompt has, in vLLM's call.
FIELDS = (
    "model",
    "prompt",
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
)
Fields = Mapping[str, msgspec.Raw]


class TokenizedPrompt(msgspec.Struct):
    """An engine answers with token ids."""

    tokens: list[int]


def token_root(scope: str) -> int:
    """Return the seed of the first block of token ids in a cache scope; events do not tell the name of their model."""
    return root_seed("tokens", "", scope)


async def read_text(body: bytes) -> Prompt:
    """Return the prompt in `body` without asking anybody."""
    return prompt_of(body)


class TokenPrompts:
    """Asks the `endpoints`, one after the other, at `path` for the tokens of prompts that are texts or chats.

    A prompt that no engine tokenizes is read as text. It is found again only while requests with it are open.
    """

    def __init__(self, endpoints: Callable[[], list[str]], path: str) -> None:
        self._endpoints = endpoints
        self._path = path
        self._turns = itertools.count()
        self._rests_until = 0.0  # time of the event loop

    async def read(self, body: bytes) -> Prompt:
        """Return the prompt in `body`."""
        prompt = prompt_of(body)
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            packed = await self._packed(fields)
            salt = msgspec.json.decode(fields["cache_salt"]) if "cache_salt" in fields else None
        except (msgspec.DecodeError, RecursionError):
            return prompt
        scope = salt if isinstance(salt, str) else ""
        return prompt._replace(packed=packed, root=token_root(scope)) if packed else prompt

    async def _packed(self, fields: Fields) -> bytes:
        """Return the packed token ids; nothing where they are not known."""
        given = msgspec.json.decode(fields["prompt"]) if "prompt" in fields else None
        if packed := token_ids(given):
            return packed
        if (given is None or isinstance(given, str)) and ("prompt" in fields or "messages" in fields):
            return pack_ids(await self._tokens(fields))
        return b""

    async def _tokens(self, fields: Fields) -> list[int]:
        loop, endpoints = asyncio.get_running_loop(), self._endpoints()
        if not endpoints or loop.time() < self._rests_until or "system" in fields:  # that is Anthropic's
            return []
        client = HttpClient(endpoints[next(self._turns) % len(endpoints)])
        asked = msgspec.json.encode({name: fields[name] for name in FIELDS if name in fields})
        try:
            async with asyncio.timeout(CALL_SECONDS), client.call("POST", self._path, asked) as response:
                body = await response.body(MOST_BYTES)
                if response.status == 200:
                    return msgspec.json.decode(body, type=TokenizedPrompt).tokens
                log.debug("a prompt is not tokenized", extra={"status": response.status, "answer": body[:200]})
        except (OSError, msgspec.DecodeError) as error:
            self._rests_until = loop.time() + REST_SECONDS
            log.warning("prompts are not tokenized", extra={"error": repr(error)})
        return []

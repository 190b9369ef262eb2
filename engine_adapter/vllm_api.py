"""A vLLM server's HTTP interface."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from engine_adapter.engine_api import (
    CONSTRAINTS,
    LONGEST_MESSAGE,
    EngineAway,
    EngineCounts,
    EngineInfo,
    EngineRefused,
    OutputPiece,
)
from engine_adapter.vllm_messages import (
    CompletionChunk,
    DetokenizedText,
    ErrorAnswer,
    ModelList,
    ServerInfo,
    TokenizedText,
    VersionInfo,
    completion_body,
    prefix_body,
    sampled_logprobs,
)
from fairlead.outcomes import FinishReason
from local_worker.core.request import Request
from local_worker.known_responses import known_response
from serving.http_client import HttpClient, HttpResponse

T = TypeVar("T")
DATA = b"data: "
DONE = b"[DONE]"
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{(.*)\})? ([-+.\deE]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
ANSWER_SECONDS = 30.0  # for a whole answer that is no stream
MOST_ANSWER = 32 * 1024 * 1024  # bytes; a million token ids have 8
MOST_LINE = 4 * 1024 * 1024  # bytes of an event of a stream
MOST_DIGITS = 10
MOST_ERROR = 64 * 1024  # bytes
REFUSALS = (400, 413, 422)  # the statuses of requests that are wrong wherever they go
# Answers that show in which form the chat template writes answers and calls.
DESCRIPTION = "Probe the form."
PROBE = {"name": "probe", "description": DESCRIPTION, "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": "{}"}}
ANSWERS = ({"role": "assistant", "content": "!"}, {"role": "assistant", "content": "", "tool_calls": [CALL]})
KNOWS_CONSTRAINTS = (0, 12)  # the first version in which `structured_outputs` has replaced older names


class NotOffered(EngineAway):
    """The engine does not offer the path."""


class VllmApi:
    """The calls that the adapter makes. All raise EngineAway; those about one request also raise EngineRefused.

    `response_template` is that of the model's family, as JSON; it is empty until `describe` finds one that is known.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.response_template = ""

    async def describe(self) -> EngineInfo:
        """Return what the engine is, once it serves."""
        await self._get("/health")
        models = _decoded(await self._get("/v1/models"), ModelList).data
        version = _decoded(await self._get("/version"), VersionInfo).version
        base = next((card for card in models if card.parent is None), None)
        config = next((labels for name, labels, _ in await self._metrics() if name == "vllm:cache_config_info"), {})
        blocks, block_tokens = (_number(config.get(name, "")) for name in ("num_gpu_blocks", "block_size"))
        if base is None or base.max_model_len is None or blocks is None or block_tokens is None:
            raise EngineAway("the engine does not say which model and which KV cache it has")
        self.response_template = await self._known_response(base.id)
        return EngineInfo(
            model=base.id,
            root=base.root or base.id,
            engine=f"vllm {version}",
            max_model_tokens=base.max_model_len,
            block_tokens=block_tokens,
            pages=blocks - 1,  # one block is vLLM's null block, which no request gets
            constraints=CONSTRAINTS if _knows_constraints(version) else frozenset(),
            long_prefill_tokens=await self._long_prefill_tokens(),
            caches_prefixes=config.get("enable_prefix_caching", "").lower() == "true",
        )

    async def _known_response(self, model: str) -> str:
        """Return the response template of the family whose answers and tools the engine renders so, if it is known."""
        shown = "".join([await self._rendered(model, answer) for answer in ANSWERS])
        known = known_response(shown) if DESCRIPTION in shown else None
        return "" if known is None else json.dumps(known, ensure_ascii=False)

    async def _rendered(self, model: str, answer: Mapping[str, object]) -> str:
        """Return the text of a chat with `answer`, which is empty if the template rejects it."""
        tools = [{"type": "function", "function": PROBE}]
        messages = [{"role": "user", "content": "?"}, answer]
        try:
            ids = await self.tokenize(model=model, messages=messages, tools=tools, add_generation_prompt=False)
            return await self.detokenize(ids)
        except (EngineRefused, NotOffered):
            return ""

    async def _long_prefill_tokens(self) -> int | None:
        """Return the largest part of a prompt in a step, 0 without a limit; None if the engine does not tell."""
        try:
            settings = _decoded(await self._get("/server_info?config_format=json"), ServerInfo).vllm_config
        except NotOffered:
            return None
        if isinstance(settings, str) or settings.scheduler_config is None:
            return None
        return settings.scheduler_config.long_prefill_token_threshold

    async def counts(self) -> EngineCounts:
        """Return what the engine has to do; also shows that it can still compute."""
        await self._get("/health")
        totals = {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.0}
        for name, _, value in await self._metrics():
            if name in totals:
                totals[name] += value
        running, waiting, used = totals.values()
        if not math.isfinite(running + waiting):
            raise EngineAway("the engine's metrics are no numbers")
        return EngineCounts(int(running + waiting), used)

    async def complete(self, request: Request, model: str) -> AsyncIterator[OutputPiece]:
        """Compute `request` and yield its output; leaving the iterator early aborts it at the engine."""
        body = completion_body(request, model, hides_special=not self.response_template)
        async for piece in self._output(body, request.sampling.logprobs):
            yield piece

    async def compute_prefix(self, request: Request, stop: int, model: str) -> None:
        """Let the engine compute, and cache, the first `stop` tokens of `request`; cancelling aborts it there."""
        async for _ in self._output(prefix_body(request, stop, model), None):
            pass

    async def _output(self, body: bytes, logprobs: int | None) -> AsyncIterator[OutputPiece]:
        try:
            async with self._client.call("POST", "/v1/completions", body) as response:
                await _check(response)
                async for data in _events(response):
                    piece = _piece(data, logprobs)
                    yield piece
                    if piece.finish is not None:
                        return
        except OSError as error:
            raise EngineAway(str(error)) from error
        raise EngineAway("the engine ended an output without a reason")

    async def tokenize(self, **body: Any) -> list[int]:
        """Return the token ids of `prompt` or `messages`; other arguments are as in vLLM's request."""
        return _decoded(await self._post("/tokenize", body), TokenizedText).tokens

    async def detokenize(self, tokens: list[int]) -> str:
        """Return the text of token ids, special tokens by their names."""
        return _decoded(await self._post("/detokenize", {"tokens": tokens}), DetokenizedText).prompt

    async def reset_prefix_cache(self) -> None:
        """Evict cached blocks that no request uses; an engine that does not offer it refuses."""
        await self._post("/reset_prefix_cache", {})

    async def _metrics(self) -> list[tuple[str, dict[str, str], float]]:
        text = (await self._get("/metrics")).decode(errors="replace")
        try:
            return [(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)]
        except ValueError as error:
            raise EngineAway(f"the engine's metrics are not understood: {error}") from error

    async def _get(self, path: str) -> bytes:
        try:
            return await self._answer("GET", path, b"")
        except EngineRefused as error:
            raise EngineAway(f"{path}: {error}") from error

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        return await self._answer("POST", path, msgspec.json.encode(body))

    async def _answer(self, method: str, path: str, body: bytes) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._client.call(method, path, body) as response:
                await _check(response)
                return await response.body(MOST_ANSWER)
        except TimeoutError as error:
            raise EngineAway(f"{path}: no answer within {ANSWER_SECONDS} s") from error
        except OSError as error:
            raise EngineAway(str(error)) from error


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def _knows_constraints(version: str) -> bool:
    found = re.match(r"(\d{1,9})\.(\d{1,9})", version)
    return found is not None and (int(found[1]), int(found[2])) >= KNOWS_CONSTRAINTS


async def _check(response: HttpResponse) -> None:
    """Raise unless the status is 200. Answers that a repetition may change mean that the engine is away."""
    if response.status == 200:
        return
    message = _message(await response.body(MOST_ERROR))
    if response.status in REFUSALS:
        raise EngineRefused(message)
    if response.status == 404:
        raise NotOffered(f"the engine answers 404: {message}")
    raise EngineAway(f"the engine answers {response.status}: {message}")


def _message(body: bytes) -> str:
    try:
        answer = msgspec.json.decode(body, type=ErrorAnswer)
    except (msgspec.DecodeError, RecursionError):
        return body[:LONGEST_MESSAGE].decode(errors="replace")
    return (answer.error.message if answer.error else answer.message)[:LONGEST_MESSAGE]


async def _events(response: HttpResponse) -> AsyncIterator[bytes]:
    """Yield the data of each event of a stream."""
    async for line in response.lines(MOST_LINE):
        if line.startswith(DATA) and line[len(DATA) :].strip() != DONE:
            yield line[len(DATA) :]


def _piece(data: bytes, logprobs: int | None) -> OutputPiece:
    chunk = _decoded(data, CompletionChunk)
    if chunk.error is not None:
        message = chunk.error.message[:LONGEST_MESSAGE]
        raise EngineRefused(message) if chunk.error.code in REFUSALS else EngineAway(f"the engine failed: {message}")
    if not chunk.choices:
        return OutputPiece([], "", [], None)
    if len(chunk.choices) > 1:
        raise EngineAway(f"the engine answers with {len(chunk.choices)} outputs in place of one")
    [choice] = chunk.choices
    if choice.finish_reason not in (None, "stop", "length"):
        raise EngineAway(f"the engine ended an output with {choice.finish_reason[:LONGEST_MESSAGE]!a}")
    finish = None if choice.finish_reason is None else FinishReason[choice.finish_reason.upper()]
    tokens = choice.token_ids or []
    try:
        found = sampled_logprobs(choice.logprobs, tokens, logprobs)
    except ValueError as error:
        raise EngineAway(f"the engine's log-probabilities are not understood: {error}") from error
    return OutputPiece(tokens, choice.text, found, finish)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineAway(f"the engine's answer is not understood: {error}") from error

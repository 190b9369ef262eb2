"""The gRPC of served engines, which takes and gives tokens: the adapter has the tokenizer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

import grpc

from engine_adapter.decoded_output import DecodedOutput
from engine_adapter.engine_api import (
    LONGEST_MESSAGE,
    EngineAway,
    EngineCounts,
    EngineInfo,
    EngineRefused,
    OpenEngine,
    OutputPiece,
)
from engine_adapter.kv_stream import KvStream
from engine_adapter.served_tokenizer import MOST_BYTES, ServedTokenizer, load_tokenizer, unpack_tokenizer
from engine_adapter.wire import common_pb2
from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request

# The engine is beside the adapter and is asked once a second; servers close connections that ping more often than they
# like, and each counts differently. One message has all blocks of an engine, if it repeats them.
CHANNEL_OPTIONS = [("grpc.keepalive_time_ms", 2**31 - 1), ("grpc.max_receive_message_length", 2**28)]
ANSWER_SECONDS = 30.0  # SGLang takes 20 to say that it is not well
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.NOT_FOUND)


class EngineDialect(Protocol):
    """The differences between the services of engines; see vllm_grpc and sglang_grpc."""

    @property
    def messages(self) -> Any:
        """The module with the service's messages."""

    def stub(self, channel: grpc.aio.Channel) -> Any:
        """Return the service's client."""

    async def describe(self, stub: Any) -> EngineInfo:
        """Return what the engine is; raises grpc.aio.AioRpcError and EngineAway."""

    def generate_request(self, request: Request, request_id: str) -> Any:
        """Return the message that computes `request`."""


class GrpcApi:
    """See EngineApi. With `tokenizer`, a path or id on the hub, the engine is not asked for its tokenizer."""

    def __init__(self, channel: grpc.aio.Channel, dialect: EngineDialect, tokenizer: str) -> None:
        self._dialect = dialect
        self._messages = dialect.messages
        self._stub = dialect.stub(channel)
        self._tokenizer = tokenizer

    async def describe(self) -> EngineInfo:
        """See EngineApi."""
        with _translated():
            await self._check_health()
            return await self._dialect.describe(self._stub)

    async def open(self, info: EngineInfo) -> OpenEngine:
        """See EngineApi; also raises ConfigError for a tokenizer that cannot be read."""
        if self._tokenizer:
            tokenizer = await asyncio.to_thread(load_tokenizer, self._tokenizer)
        else:
            tokenizer = await asyncio.to_thread(unpack_tokenizer, await self._tokenizer_archive())
        follower = partial(KvStream, self._stub.SubscribeKvEvents)
        return OpenEngine(info, tokenizer, partial(self._output, tokenizer), follower)

    async def counts(self) -> EngineCounts:
        """See EngineApi. Of several data-parallel engines it is the sum, and the fullest cache."""
        with _translated():
            await self._check_health()
            loads = (await self._stub.GetLoads(self._messages.GetLoadsRequest(), timeout=ANSWER_SECONDS)).loads
        requests = sum(load.num_running_reqs + load.num_waiting_reqs for load in loads)
        return EngineCounts(requests, max((load.token_usage for load in loads), default=0.0))

    async def reset_prefix_cache(self) -> None:
        """See EngineApi."""
        with _translated():
            answer = await self._stub.FlushCache(common_pb2.FlushCacheRequest(), timeout=ANSWER_SECONDS)
        if not answer.success:
            raise EngineRefused(answer.message)

    async def generate(self, request: Request) -> AsyncIterator[OutputPiece]:
        """Compute `request` and yield its output, as EngineOutput does; its end may come without tokens."""
        call = self._stub.Generate(self._dialect.generate_request(request, uuid4().hex))
        try:
            with _translated(REFUSALS):
                async for response in call:
                    if response.HasField("complete"):
                        yield OutputPiece([], "", [], _finish(response.complete.finish_reason))
                        return
                    tokens = list(response.chunk.token_ids)
                    yield OutputPiece(tokens, "", _logprobs(response.chunk, request.sampling.logprobs), None)
        finally:
            call.cancel()
        raise EngineAway("the engine ended an output without a reason")

    def _output(self, tokenizer: ServedTokenizer, request: Request, cache_scope: str) -> DecodedOutput:
        generated = request.tokens[request.prompt_tokens - request.seed_position : request.prompt_tokens]
        text = OutputText(tokenizer.decoder(), request.sampling.stop, generated, request.sampling.min_tokens)
        return DecodedOutput(self.generate, request, text, tokenizer.eos_token_ids)

    async def _check_health(self) -> None:
        health = await self._stub.HealthCheck(self._messages.HealthCheckRequest(), timeout=ANSWER_SECONDS)
        if not health.healthy:
            raise EngineAway(f"the engine is not well: {health.message}")

    async def _tokenizer_archive(self) -> bytes:
        data = bytearray()
        call = self._stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=ANSWER_SECONDS)
        try:
            with _translated():
                async for chunk in call:
                    data += chunk.data
                    if len(data) > MOST_BYTES:
                        raise EngineAway(f"its archive has more than {MOST_BYTES} bytes")
        except EngineAway as error:
            raise EngineAway(f"the engine does not give its tokenizer; name it with `tokenizer`: {error}") from error
        finally:
            call.cancel()
        return bytes(data)


@contextmanager
def _translated(refusals: tuple[grpc.StatusCode, ...] = ()) -> Iterator[None]:
    """Raise EngineRefused for a status in `refusals`, and EngineAway for others, in place of gRPC's errors."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        message = (error.details() or "")[:LONGEST_MESSAGE]
        if error.code() in refusals:
            raise EngineRefused(message) from error
        raise EngineAway(f"the engine answers {error.code().name}: {message}") from error


def _finish(reason: str) -> FinishReason:
    if reason not in ("stop", "length"):
        raise EngineAway(f"the engine ended an output with {reason}")
    return FinishReason[reason.upper()]


def _logprobs(chunk: Any, wanted: int | None) -> list[SampledLogprobs]:
    """Return the log-probabilities of the chunk's tokens, each with the `wanted` most likely tokens, best first.

    Engines list the sampled token among the likely ones even where it is not one of them.
    """
    if wanted is None:
        return []
    found = chunk.output_logprobs
    tops = list(found.top_logprobs) or [None] * len(found.token_logprobs)
    if len(tops) != len(found.token_logprobs) or any(len(top.token_ids) != len(top.values) for top in tops if top):
        raise EngineAway("the engine's log-probabilities have different lengths")
    return [
        SampledLogprobs(logprob, _top(top, wanted) if top is not None else ())
        for logprob, top in zip(found.token_logprobs, tops, strict=True)
    ]


def _top(listed: Any, wanted: int) -> tuple[tuple[int, float], ...]:
    pairs = sorted(zip(listed.token_ids, listed.values, strict=True), key=lambda pair: -pair[1])
    return tuple(pairs[:wanted])

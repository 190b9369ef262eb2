"""The gRPC of `vllm serve --grpc`, which takes and gives tokens: the adapter has the tokenizer."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import grpc

from engine_adapter.decoded_output import DecodedOutput
from engine_adapter.engine_api import (
    CONSTRAINTS,
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
from engine_adapter.wire import common_pb2, vllm_pb2, vllm_pb2_grpc
from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from serving.constraint import Constraint

MOST_MESSAGE = 2**22  # bytes of a message; a step's log-probabilities have some kilobytes
MOST_EVENTS = 2**28  # of one about the cache, which has all blocks of an engine, if it repeats them
SERVICE = vllm_pb2.DESCRIPTOR.services_by_name["VllmEngine"].full_name
LIMITS = {
    "methodConfig": [
        {"name": [{"service": SERVICE}], "maxResponseMessageBytes": MOST_MESSAGE},
        {"name": [{"service": SERVICE, "method": "SubscribeKvEvents"}], "maxResponseMessageBytes": MOST_EVENTS},
    ]
}
# The engine is beside the adapter and is asked once a second; servers close connections that ping more often than they
# like, and each counts differently.
CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", 2**31 - 1),
    ("grpc.max_receive_message_length", MOST_EVENTS),
    ("grpc.service_config", json.dumps(LIMITS)),
]
ANSWER_SECONDS = 30.0
LEAST_WRONG_SEED = 2**31  # ours have 64 bits, those of the message are below this
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.NOT_FOUND)


class VllmGrpc:
    """See EngineApi. Requests have no cache salt in their message, so all of them share cached prefixes.

    With `tokenizer`, a path or an id on the hub, the engine is not asked for its tokenizer.
    """

    def __init__(self, channel: grpc.aio.Channel, tokenizer: str) -> None:
        self._stub: Any = vllm_pb2_grpc.VllmEngineStub(channel)
        self._tokenizer = tokenizer

    async def describe(self) -> EngineInfo:
        """See EngineApi."""
        with _translated():
            await self._check_health()
            model = await self._stub.GetModelInfo(vllm_pb2.GetModelInfoRequest(), timeout=ANSWER_SECONDS)
            server = await self._stub.GetServerInfo(vllm_pb2.GetServerInfoRequest(), timeout=ANSWER_SECONDS)
            loads = await self._stub.GetLoads(vllm_pb2.GetLoadsRequest(), timeout=ANSWER_SECONDS)
            tokens = loads.loads[0].max_total_num_tokens if loads.loads else 0
            if not (model.max_context_length and server.block_size and tokens):
                raise EngineAway("the engine does not say which model and which KV cache it has")
            return EngineInfo(
                model=model.served_model_name or model.model_path,
                root=model.model_path,
                engine=f"vllm {loads.version}",
                max_model_tokens=model.max_context_length,
                block_tokens=server.block_size,
                pages=tokens // server.block_size - 1,  # one block is vLLM's null block, which no request gets
                constraints=CONSTRAINTS,
                vocab_size=model.vocab_size or None,
                max_running=server.max_num_seqs or None,
                has_cache_scopes=False,
            )

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
            loads = (await self._stub.GetLoads(vllm_pb2.GetLoadsRequest(), timeout=ANSWER_SECONDS)).loads
        requests = sum(load.num_running_reqs + load.num_waiting_reqs for load in loads)
        return EngineCounts(requests, max((load.token_usage for load in loads), default=0.0))

    async def reset_prefix_cache(self) -> None:
        """See EngineApi."""
        with _translated():
            answer = await self._stub.FlushCache(common_pb2.FlushCacheRequest(), timeout=ANSWER_SECONDS)
        if not answer.success:
            raise EngineRefused(answer.message[:LONGEST_MESSAGE])

    async def generate(self, request: Request) -> AsyncIterator[OutputPiece]:
        """Compute `request` and yield its output, as EngineOutput does; its end may come without tokens."""
        call = self._stub.Generate(_generate_request(request, uuid4().hex))
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

    def _output(self, tokenizer: ServedTokenizer, request: Request) -> DecodedOutput:
        generated = request.tokens[request.prompt_tokens - request.seed_position : request.prompt_tokens]
        text = OutputText(tokenizer.decoder(), request.sampling.stop, generated, request.sampling.min_tokens)
        return DecodedOutput(self.generate, request, text, tokenizer.eos_token_ids)

    async def _check_health(self) -> None:
        health = await self._stub.HealthCheck(vllm_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS)
        if not health.healthy:
            raise EngineAway(f"the engine is not well: {health.message[:LONGEST_MESSAGE]}")

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


def _generate_request(request: Request, request_id: str) -> vllm_pb2.GenerateRequest:
    """Return the message that computes `request`. Stop strings are not in it: the adapter finds them."""
    sampling = request.sampling
    params = vllm_pb2.SamplingParams(
        temperature=0.0 if sampling.is_greedy else sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        logprobs=sampling.logprobs,
        seed=sampling.seed % LEAST_WRONG_SEED,
        logit_bias=dict(sampling.logit_bias),
    )
    if sampling.constraint is not None:
        _constrain(params, sampling.constraint)
    tokens = vllm_pb2.TokenizedInput(input_ids=request.tokens)
    return vllm_pb2.GenerateRequest(request_id=request_id, tokenized=tokens, sampling_params=params, stream=True)


def _constrain(params: vllm_pb2.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case "json_object":
            params.json_object = True
        case "choice":
            params.choice.choices.extend(constraint.texts)
        case "json_schema":
            params.json_schema = constraint.texts[0]
        case "regex":
            params.regex = constraint.texts[0]
        case _:
            params.grammar = constraint.texts[0]


def _finish(reason: str) -> FinishReason:
    if reason not in ("stop", "length"):
        raise EngineAway(f"the engine ended an output with {reason[:LONGEST_MESSAGE]!a}")
    return FinishReason[reason.upper()]


def _logprobs(chunk: Any, wanted: int | None) -> list[SampledLogprobs]:
    """Return the log-probabilities of the chunk's tokens, each with the `wanted` most likely tokens, best first.

    Engines list the sampled token among the likely ones even where it is not one of them.
    """
    if wanted is None or not chunk.output_logprobs.token_logprobs:
        return []
    found, tokens = chunk.output_logprobs, len(chunk.token_ids)
    tops = list(found.top_logprobs) or [None] * tokens
    if not len(tops) == len(found.token_logprobs) == tokens or any(
        len(top.token_ids) != len(top.values) for top in tops if top
    ):
        raise EngineAway("the engine's log-probabilities have different lengths")
    return [
        SampledLogprobs(logprob, _top(top, wanted) if top is not None else ())
        for logprob, top in zip(found.token_logprobs, tops, strict=True)
    ]


def _top(listed: Any, wanted: int) -> tuple[tuple[int, float], ...]:
    pairs = sorted(zip(listed.token_ids, listed.values, strict=True), key=lambda pair: -pair[1])
    return tuple(pairs[:wanted])

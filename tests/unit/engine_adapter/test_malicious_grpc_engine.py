"""Whatever an engine sends over gRPC, its adapter takes it for one that is away or that refuses, in bounded memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_adapter.decoded_output import DecodedOutput
from engine_adapter.engine_api import EngineAway, EngineRefused, OutputPiece
from engine_adapter.engine_claims import MOST_EMPTY, OutputClaims, check_counts, check_info
from engine_adapter.kv_stream import KvStream
from engine_adapter.vllm_grpc import CHANNEL_OPTIONS, MOST_MESSAGE, VllmGrpc
from engine_adapter.wire import common_pb2, vllm_pb2
from fairlead.rpc.channel import open_channel
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from serving.kv_events.core.block_rehash import BlockRehash
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks
from serving.sampling_params import SamplingParams
from tests.fakes.served_engine.malicious_grpc import MaliciousGrpcEngine, chunk, complete, endless, honest
from tests.system.attacks.messages import structured

EOS = 256
NAN, INFINITE = float("nan"), float("inf")


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[MaliciousGrpcEngine, VllmGrpc]]:
    async with MaliciousGrpcEngine().serve() as engine:
        channel = open_channel(engine.address, CHANNEL_OPTIONS)
        yield engine, VllmGrpc(channel, "")
        await channel.close()


class NoText:
    """A decoder of tokens to nothing."""

    def push(self, tokens: list[int]) -> tuple[str, str]:
        return "", ""


def request(max_tokens: int, logprobs: int | None = 1) -> Request:
    return Request(
        id="r",
        client="c",
        tokens=[104, 105],
        prompt_tokens=2,
        digests=[],
        chain_seed=0,
        sampling=SamplingParams(max_tokens=max_tokens, logprobs=logprobs),
        arrival=0,
    )


async def output(api: VllmGrpc, max_tokens: int = 5, logprobs: int | None = None) -> list[int]:
    """The tokens of one output, as the adapter's backend takes them."""
    asked = request(max_tokens, logprobs)
    text: OutputText = NoText()  # type: ignore[assignment]
    claims, tokens = OutputClaims(max_tokens), list[int]()
    async for piece in DecodedOutput(api.generate, asked, text, [EOS]).pieces():
        claims.check(piece)
        assert len(piece.logprobs) <= len(piece.tokens)
        tokens += piece.tokens
    return tokens


async def test_an_honest_engine_is_believed() -> None:
    async with served() as (_, api):
        info = await api.describe()
        check_info(info)
        check_counts(await api.counts())
        assert (info.pages, info.block_tokens) == (100, 16)
        assert await output(api) == [97, 97]


def logprobs(*values: float, ids: Sequence[int] = (97,), top: float = -0.5) -> vllm_pb2.OutputLogProbs:
    likely = vllm_pb2.TopLogProbs(token_ids=ids, values=[top])
    return vllm_pb2.OutputLogProbs(token_logprobs=values, top_logprobs=[likely] * len(values))


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (vllm_pb2.GenerateResponse(), complete("")),
        (complete("abort"),),
        (complete("x" * 100_000),),
        (chunk(97), complete("error")),
        (chunk(*[97] * 6), complete("length")),
        (chunk(97), chunk(*[97] * 5), complete("length")),
        (chunk(97, output_logprobs=logprobs(-0.5, -0.5)), complete("length")),
        (chunk(output_logprobs=logprobs(-0.5)), complete("length")),
        (chunk(97, output_logprobs=logprobs(NAN)), complete("length")),
        (chunk(97, output_logprobs=logprobs(-0.5, top=NAN)), complete("length")),
        (chunk(97, output_logprobs=logprobs(-0.5, ids=(1, 2))), complete("length")),
        "no" * 2000,
    ],
)
async def test_an_output_that_cannot_be_ends_as_that_of_an_engine_that_is_away(messages: Any) -> None:
    async with served() as (engine, api):
        engine.answers["Generate"] = messages
        with pytest.raises((EngineAway, EngineRefused)) as caught:
            await output(api, logprobs=1)
        assert len(str(caught.value)) < 1000


ENDLESS: Mapping[str, Any] = {
    "tokens": chunk(97),
    "ends without an end": chunk(EOS),
    "tokens and ends": chunk(97, EOS),
    "nothing": vllm_pb2.GenerateResponse(),
    "no tokens": chunk(),
    "log-probabilities alone": chunk(output_logprobs=logprobs(-0.5)),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_endless_stream_is_left(name: str) -> None:
    async with served() as (engine, api):
        engine.answers["Generate"] = endless(ENDLESS[name])
        async with asyncio.timeout(60):
            with pytest.raises((EngineAway, EngineRefused)):
                await output(api)
            await engine.left.wait()
        assert engine.sent < 2 * MOST_EMPTY


LARGE: Mapping[str, Any] = {
    "Generate": (chunk(*[97] * MOST_MESSAGE),),
    "HealthCheck": vllm_pb2.HealthCheckResponse(healthy=True, message="x" * MOST_MESSAGE),
    "GetModelInfo": vllm_pb2.GetModelInfoResponse(model_path="m" * MOST_MESSAGE, max_context_length=400),
    "GetLoads": vllm_pb2.GetLoadsResponse(loads=[vllm_pb2.SchedulerLoad()] * MOST_MESSAGE),
}


@pytest.mark.parametrize("method", LARGE)
async def test_a_message_that_is_too_large_is_not_read(method: str) -> None:
    async with served() as (engine, api):
        engine.answers[method] = LARGE[method]
        with pytest.raises(EngineAway, match="RESOURCE_EXHAUSTED"):
            await (output(api) if method == "Generate" else api.describe())


LONG = "n" * 100_000


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HealthCheck", vllm_pb2.HealthCheckResponse(message=LONG)),
        ("HealthCheck", LONG[:4000]),
        ("FlushCache", common_pb2.FlushCacheResponse(message=LONG)),
        ("GetModelInfo", vllm_pb2.GetModelInfoResponse(model_path=LONG, max_context_length=400)),
        ("GetModelInfo", vllm_pb2.GetModelInfoResponse(model_path="a\nb", max_context_length=400)),
        ("GetModelInfo", vllm_pb2.GetModelInfoResponse(served_model_name="\u202e", max_context_length=400)),
        ("GetLoads", vllm_pb2.GetLoadsResponse(loads=honest()["GetLoads"].loads, version=LONG)),
    ],
)
async def test_long_and_invisible_words_of_an_engine_are_neither_passed_on_nor_logged(method: str, answer: Any) -> None:
    async with served() as (engine, api):
        engine.answers[method] = answer
        with pytest.raises((EngineAway, EngineRefused)) as caught:
            await describe_and_flush(api)
        assert len(str(caught.value)) < 1000
        assert str(caught.value).isprintable()


async def describe_and_flush(api: VllmGrpc) -> None:
    check_info(await api.describe())
    await api.reset_prefix_cache()


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any message of this kind."""
    return structured(kind.DESCRIPTOR)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "HealthCheck": any_of(vllm_pb2.HealthCheckResponse),
            "GetModelInfo": any_of(vllm_pb2.GetModelInfoResponse),
            "GetServerInfo": any_of(vllm_pb2.GetServerInfoResponse),
            "GetLoads": any_of(vllm_pb2.GetLoadsResponse),
            "Generate": st.lists(any_of(vllm_pb2.GenerateResponse), max_size=4),
        },
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_field_of_a_message_raises_anything_else(answers: dict[str, Any]) -> None:
    async def read() -> None:
        async with served() as (engine, api):
            engine.answers.update(answers)
            with contextlib.suppress(EngineAway, EngineRefused):
                check_info(await api.describe())
            with contextlib.suppress(EngineAway, EngineRefused):
                check_counts(await api.counts())
            with contextlib.suppress(EngineAway, EngineRefused):
                await output(api, logprobs=1)

    asyncio.run(read())


@given(st.lists(any_of(common_pb2.KvEventBatch), max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_event_of_the_cache_ends_the_adapter(batches: list[Any]) -> None:
    blocks = BlockRehash(16, lambda scope: 1)

    def apply(events: list[KvEvent]) -> None:
        for event in events:
            match event:
                case StoredBlocks():
                    blocks.stored(*event)
                case RemovedBlocks():
                    blocks.removed(event.names)
                case AllRemoved():
                    blocks.cleared()

    async def follow() -> None:
        async def subscribe(_: object) -> AsyncIterator[Any]:
            for batch in batches:
                yield batch
            cleared.set()
            await asyncio.Event().wait()

        cleared = asyncio.Event()
        stream = asyncio.create_task(KvStream(subscribe, apply, lambda: apply([AllRemoved()])).run())
        ended = asyncio.create_task(cleared.wait())
        await asyncio.wait([stream, ended], timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        assert not stream.done(), stream.exception()
        for task in (stream, ended):
            task.cancel()

    asyncio.run(follow())


async def test_a_piece_too_much_is_not_held() -> None:
    """What may be the last piece is held until the next one, also where none of them ends."""

    async def generate(_: Request) -> AsyncIterator[OutputPiece]:
        while True:
            yield OutputPiece([97], "", [], None)

    text: OutputText = NoText()  # type: ignore[assignment]
    async with asyncio.timeout(10):
        with pytest.raises(EngineAway, match="more tokens than were asked for"):
            async for _ in DecodedOutput(generate, request(5), text, [EOS]).pieces():
                pass

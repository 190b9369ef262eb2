"""Whatever an engine answers, its adapter takes it for an engine that is away or that refuses, in bounded memory."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter import vllm_api
from engine_adapter.engine_api import EngineAway, EngineCounts, EngineInfo, EngineRefused, OutputPiece
from engine_adapter.engine_claims import MOST_EMPTY, OutputClaims, check_counts, check_info
from engine_adapter.vllm_api import VllmApi
from local_worker.core.batch import SampledLogprobs
from local_worker.core.request import Request
from serving.http_client import HttpClient
from serving.sampling_params import SamplingParams
from tests.fakes.served_engine.malicious import METRICS, MaliciousEngine, choice, events, whole

MIB = 1024 * 1024
CHUNKED = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"HTTP/1.1 200 x\r\nContent-Length: 1000000000000\r\n\r\n"
LOGPROBS: dict[str, Any] = {"token_logprobs": [-0.5], "top_logprobs": [{"token_id:97": -0.5}]}


def request(max_tokens: int) -> Request:
    return Request(
        id="r",
        client="c",
        tokens=[104, 105],
        prompt_tokens=2,
        digests=[],
        chain_seed=0,
        sampling=SamplingParams(max_tokens=max_tokens, logprobs=1),
        arrival=0,
    )


@pytest.fixture
async def engine() -> AsyncIterator[MaliciousEngine]:
    async with MaliciousEngine().serve() as engine:
        yield engine


async def output(engine: MaliciousEngine, max_tokens: int = 5) -> list[int]:
    """The tokens of one output, as the adapter's backend takes them."""
    claims, tokens = OutputClaims(max_tokens), list[int]()
    async for piece in VllmApi(HttpClient(engine.address)).complete(request(max_tokens), "m"):
        claims.check(piece)
        tokens += piece.tokens
    return tokens


async def test_an_honest_engine_is_believed(engine: MaliciousEngine) -> None:
    api = VllmApi(HttpClient(engine.address))
    info = await api.describe()
    check_info(info)
    check_counts(await api.counts())
    assert (info.pages, info.block_tokens) == (100, 16)
    assert info.long_prefill_tokens is None
    assert await output(engine) == [97, 97]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"scheduler_config": {"long_prefill_token_threshold": 512}}, 512),
        ({"scheduler_config": {}}, 0),
        ({"another": 1}, None),
        ("VllmConfig(...)", None),
    ],
)
async def test_an_engine_in_development_mode_tells_the_largest_part_of_a_prompt(
    engine: MaliciousEngine, settings: object, told: int | None
) -> None:
    engine.answers["/server_info?config_format=json"] = whole({"vllm_config": settings, "vllm_env": {}})
    info = await VllmApi(HttpClient(engine.address)).describe()
    check_info(info)
    assert info.long_prefill_tokens == told


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff" * 5000,
        b"HTTP/1.1 200",
        b"HTTP/1.1 999999 x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nxyz",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: -5\r\n\r\nx",
        CHUNKED + b"zz\r\nhello\r\n",
        CHUNKED + b"ffffffffffffffffffff\r\nhello\r\n",
        whole(b"x" * 100_000, status=500),
        whole({"error": {"message": "m" * 10_000, "code": []}}, status=400),
        whole(b"[" * 100_000, status=400),
        events(),
        events(b""),
        events(b"[" * 100_000),
        events(b"\xff"),
        events([]),
        events({"choices": None}),
        events({"choices": [choice()["choices"][0]] * 2}),
        events({"error": {"message": "no", "code": {}}}),
        events(choice(finish_reason="abort")),
        events(choice(finish_reason=7)),
        events(choice(text=5)),
        events(choice(text=None)),
        events(b'{"choices": [{"text": "\\ud800", "token_ids": [1]}]}'),
        events(choice(token_ids="x")),
        events(choice(token_ids=[-1])),
        events(choice(token_ids=[2**32])),
        events(choice(token_ids=[0.5])),
        events(choice(token_ids=[True])),
        events(choice(token_ids=[1] * 6)),
        events(*[choice()] * 6),
        events(choice(logprobs=5)),
        events(choice(logprobs={**LOGPROBS, "token_logprobs": [float("nan")]})),
        events(choice(logprobs={**LOGPROBS, "top_logprobs": [{"token_id:x": -1.0}]})),
        events(choice(logprobs={**LOGPROBS, "top_logprobs": [{"token_id:" + "9" * 5000: -1.0}]})),
        events(choice(logprobs={**LOGPROBS, "top_logprobs": [{"token_id:-4": -1.0}]})),
        events(choice(logprobs={**LOGPROBS, "top_logprobs": [{"token_id:4294967296": -1.0}]})),
    ],
)
async def test_an_output_that_cannot_be_ends_as_that_of_an_engine_that_is_away(
    engine: MaliciousEngine, answer: bytes
) -> None:
    engine.answers["/v1/completions"] = answer
    with pytest.raises((EngineAway, EngineRefused)) as caught:
        await output(engine)
    assert len(str(caught.value)) < 1000


NONSENSE = [b"", b"{}", b"null", b"[1]", b"\xff", b"[" * 100_000, b'{"data": [{"id": 5}]}', b'{"version": 5}', b"{"]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/metrics", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", NONSENSE)
async def test_answers_about_the_engine_that_cannot_be(engine: MaliciousEngine, path: str, body: bytes) -> None:
    api = VllmApi(HttpClient(engine.address))
    for status in (200, 400, 404, 503):
        engine.answers[path] = whole(body, status)
        for call in (api.describe(), api.counts(), api.tokenize(prompt="x"), api.detokenize([1])):
            with contextlib.suppress(EngineAway, EngineRefused):
                found = await call
                if isinstance(found, EngineInfo):
                    check_info(found)


@pytest.mark.parametrize(
    ("line", "forged"),
    [
        ("num_requests_running", "1e999"),
        ("num_requests_running", "-1"),
        ("num_requests_running", "1e300"),
        ("num_requests_running", "1-2"),
        ("num_requests_waiting", "e"),
        ("kv_cache_usage_perc", "1e999"),
        ("kv_cache_usage_perc", "-0.5"),
    ],
)
async def test_a_load_that_cannot_be(engine: MaliciousEngine, line: str, forged: str) -> None:
    engine.answers["/metrics"] = whole(METRICS.replace(f'{line}{{model_name="m"}} 0.0', f"{line} {forged}").encode())
    with pytest.raises(EngineAway):
        check_counts(await VllmApi(HttpClient(engine.address)).counts())


@pytest.mark.parametrize(
    ("given", "forged"),
    [
        ('block_size="16"', 'block_size="0"'),
        ('block_size="16"', 'block_size="-16"'),
        ('block_size="16"', 'block_size="None"'),
        ('block_size="16"', f'block_size="{"9" * 5000}"'),
        ('block_size="16",', ""),
        ('num_gpu_blocks="101"', 'num_gpu_blocks="1"'),
        ('num_gpu_blocks="101"', 'num_gpu_blocks="4294967295"'),
        ('num_gpu_blocks="101"', 'num_gpu_blocks="²"'),
        (',num_gpu_blocks="101"', ""),
    ],
)
async def test_a_cache_that_cannot_be(engine: MaliciousEngine, given: str, forged: str) -> None:
    engine.answers["/metrics"] = whole(METRICS.replace(given, forged).encode())
    with pytest.raises(EngineAway):
        check_info(await VllmApi(HttpClient(engine.address)).describe())


@pytest.mark.parametrize("length", [0, -1, 2**31, 10**30, 0.5, "400"])
async def test_a_context_that_cannot_be(engine: MaliciousEngine, length: object) -> None:
    engine.answers["/v1/models"] = whole({"data": [{"id": "m", "max_model_len": length}]})
    with pytest.raises(EngineAway):
        check_info(await VllmApi(HttpClient(engine.address)).describe())


def test_a_load_over_grpc_may_be_no_number() -> None:
    for counts in (EngineCounts(1, float("nan")), EngineCounts(1, float("inf")), EngineCounts(-1, 0.0)):
        with pytest.raises(EngineAway):
            check_counts(counts)


def test_log_probabilities_of_forbidden_tokens_are_infinite_and_none_is_no_number() -> None:
    claims = OutputClaims(9)
    claims.check(OutputPiece([1], "", [SampledLogprobs(-0.1, ((5, float("-inf")),))], None))
    for found in (SampledLogprobs(float("nan"), ()), SampledLogprobs(-1.0, ((5, float("nan")),))):
        with pytest.raises(EngineAway):
            claims.check(OutputPiece([1], "", [found], None))


HEADS: dict[str, tuple[bytes, bytes]] = {
    "a header": (b"HTTP/1.1 200 x\r\nX: ", b"y" * MIB),
    "headers": (b"HTTP/1.1 200 x\r\n", b"X: y\r\n" * 100_000),
    "a reason": (b"HTTP/1.1 200 ", b"y" * MIB),
    "a chunk's extension": (CHUNKED + b"5;", b"y" * MIB),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 100_000),
    "interim answers": (b"", b"HTTP/1.1 102 x\r\n\r\n" * 10_000),
    "a line": (LONG, b"y" * MIB),
    "a line in chunks": (CHUNKED, (b"40\r\n" + b"y" * 64 + b"\r\n") * 10_000),
    "an event": (LONG + b"data: ", b"[" * MIB),
}


@pytest.mark.parametrize("name", HEADS)
async def test_an_endless_answer_is_left_after_some_mebibytes(engine: MaliciousEngine, name: str) -> None:
    engine.answers["/v1/completions"] = engine.endless(*HEADS[name])
    async with asyncio.timeout(60):
        with pytest.raises((EngineAway, EngineRefused)):
            await output(engine)
        await engine.closed.wait()
    assert engine.sent < 24 * MIB, "the line's limit, and what the buffers between hold"


CALLS: dict[str, Callable[[VllmApi], Awaitable[object]]] = {
    "/health": VllmApi.counts,
    "/metrics": VllmApi.counts,
    "/v1/models": VllmApi.describe,
    "/version": VllmApi.describe,
    "/tokenize": lambda api: api.tokenize(prompt="x"),
    "/detokenize": lambda api: api.detokenize([1]),
}


@pytest.mark.parametrize("path", CALLS)
async def test_an_answer_that_never_ends_is_left(engine: MaliciousEngine, path: str) -> None:
    engine.answers[path] = engine.endless(LONG, b"y" * MIB)
    async with asyncio.timeout(60):
        with pytest.raises(EngineAway, match="longer than 33554432 bytes"):
            await CALLS[path](VllmApi(HttpClient(engine.address)))
        await engine.closed.wait()
    assert engine.sent < 64 * MIB


async def test_an_answer_that_never_begins_is_given_up(
    engine: MaliciousEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_api, "ANSWER_SECONDS", 0.05)

    async def silence(writer: asyncio.StreamWriter) -> None:
        await writer.wait_closed()

    engine.answers["/health"] = silence
    with pytest.raises(EngineAway, match="/health: no answer within"):
        await VllmApi(HttpClient(engine.address)).counts()


async def test_events_without_a_token_end_some_time(engine: MaliciousEngine) -> None:
    empty = b"data: " + json.dumps(choice(token_ids=[], text="")).encode() + b"\n\n"
    engine.answers["/v1/completions"] = engine.endless(LONG, empty * 1000)
    async with asyncio.timeout(60):
        with pytest.raises(EngineAway, match=f"{MOST_EMPTY} parts of an output without a token"):
            await output(engine)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=5,
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "text": st.just("a") | ANY,
        "token_ids": st.just([97]) | ANY,
        "finish_reason": st.sampled_from([None, "stop", "length"]) | ANY,
        "logprobs": st.just(LOGPROBS) | st.fixed_dictionaries({"token_logprobs": ANY, "top_logprobs": ANY}) | ANY,
    },
)
CHUNK = st.fixed_dictionaries({}, optional={"choices": st.lists(CHOICE, max_size=2) | ANY, "error": ANY}) | ANY


@given(st.lists(CHUNK, max_size=4))
@settings(max_examples=150, deadline=None)
def test_no_field_of_an_event_raises_anything_else(chunks: list[object]) -> None:
    async def read() -> None:
        async with MaliciousEngine().serve() as engine:
            engine.answers["/v1/completions"] = events(*chunks)
            with contextlib.suppress(EngineAway, EngineRefused):
                await output(engine)

    asyncio.run(read())

"""What the picker reads of engines' metrics, by their names, and what it does with engines that answer badly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from endpoint_picker.app import make_picker
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.engine_poll import STALE_ROUNDS, EnginePoll
from endpoint_picker.picker import Picker
from endpoint_picker.request_body import Prompt
from serving import metrics_page
from serving.engine_metrics import EngineMetrics, load_of
from serving.metrics_page import MOST_BYTES

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b} 9"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_running_reqs_offline_batch{model_name="m"} 8.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 6 1700000000000
sglang:token_usage{model_name="m",tp_rank="0"} 0.28"""
TENSORRT_LLM = b"""# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running 2.0
trtllm_num_requests_waiting 5.0
trtllm_kv_cache_utilization 1e-1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(VLLM, (5, 1, 0.5)), (SGLANG, (4, 6, 0.28)), (TENSORRT_LLM, (2, 5, 0.1))],
    ids=["vllm", "sglang", "tensorrt-llm"],
)
def test_the_names_of_each_engine(text: bytes, expected: tuple[int, int, float]) -> None:
    assert load_of(text) == EngineMetrics(*expected)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"process_cpu_seconds_total 1.0",
        b"vllm:num_requests_running 1",
        VLLM.replace(b" 3.0", b" NaN"),
        VLLM.replace(b" 3.0", b" +Inf"),
        VLLM.replace(b" 3.0", b" -1"),
        VLLM.replace(b" 3.0", b""),
        VLLM.replace(b" 3.0", b" many"),
    ],
)
def test_answers_that_are_no_report_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_of(text)


class MetricsServer:
    """An engine's metrics endpoint; `answer` is what it says, as bytes of HTTP, or None: it says nothing."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.calls = 0
        self.called = asyncio.Condition()

    def says(self, text: bytes, status: int = 200) -> None:
        self.answer = f"HTTP/1.1 {status} x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            async with self.called:
                self.calls += 1
                self.called.notify_all()
            if self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
            else:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):  # the picker has given up, perhaps before it has asked
            pass
        finally:
            writer.close()


Polled = tuple[MetricsServer, Picker, EnginePoll, Callable[[int], Awaitable[None]]]


@pytest.fixture
async def polled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Polled]:
    """An engine, a picker that asks it, and a function that waits until it was asked so many times more."""
    monkeypatch.setattr(metrics_page, "CALL_SECONDS", 60.0)  # however busy the machine is
    engine = MetricsServer()
    server = await asyncio.start_server(engine.handle, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    picker = make_picker(PickerConfig(endpoints=address, max_running=4), ServiceCounters())
    picker.set_endpoints([address])
    poll = EnginePoll(picker, ["/metrics"], 0.001)

    async def asked(times: int) -> None:
        until = engine.calls + times
        async with engine.called:
            await engine.called.wait_for(lambda: engine.calls >= until)

    engine.says(VLLM)
    running = asyncio.create_task(poll.run())
    try:
        yield engine, picker, poll, asked
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
        server.close()


async def test_requests_wait_while_other_callers_fill_the_engine(polled: Polled) -> None:
    engine, picker, poll, asked = polled
    await asked(2)
    assert poll.answering == 1
    placing = asyncio.create_task(picker.place("ann", 1000, Prompt(), None))
    await asked(2)
    assert picker.waiting == 1
    engine.says(SGLANG.replace(b" 6 ", b" 0 ").replace(b" 4.0", b" 1.0"))
    assert (await placing).endpoint == picker.pool.endpoints[0]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: 99\r\n\r\nvllm:",
        b"HTTP/1.1 200 x\r\n\r\n" + VLLM + b"#" * (MOST_BYTES + 1),
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\na 1\n",
    ],
    ids=["silent", "404", "cut", "endless", "no HTTP", "no engine"],
)
async def test_an_engine_that_answers_badly_is_known_by_what_was_placed_there(
    polled: Polled, answer: bytes | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, picker, poll, asked = polled
    await asked(2)
    placing = asyncio.create_task(picker.place("ann", 1000, Prompt(), None))
    engine.answer = answer
    if answer is None:  # the call that was just asked has its answer
        monkeypatch.setattr(metrics_page, "CALL_SECONDS", 0.01)
    assert (await placing).endpoint == picker.pool.endpoints[0]
    assert poll.answering == 0
    await asked(STALE_ROUNDS)
    assert len(caplog.records) == 1  # not one for each call
    engine.says(VLLM)
    monkeypatch.setattr(metrics_page, "CALL_SECONDS", 60.0)
    while not poll.answering:  # some calls may have begun before
        await asked(1)

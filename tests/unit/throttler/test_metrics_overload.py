"""Overload as metrics tell it: of engines by their own names, of any process by a metric's name, and of none."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving import metrics_page
from serving.config import ConfigError
from tests.services import DEADLINE, StartService, eventually
from tests.unit.throttler.rate_limit_client import client_of
from throttler.config import ThrottlerConfig
from throttler.metrics_overload import FRESH_SECONDS, MetricsOverload, MetricsUrl, OverloadRule

VLLM = """vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} %s
vllm:kv_cache_usage_perc{engine="0"} 0.5
"""
SGLANG = "sglang:num_running_reqs 1\nsglang:num_queue_reqs %s\nsglang:token_usage 0.5\n"
TENSORRT_LLM = "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting %s\ntrtllm_kv_cache_utilization 0.5\n"


class MetricsPage:
    """A process's metrics at one address; without a `text` it does not answer."""

    def __init__(self) -> None:
        self.text = ""
        self.port = 0

    @property
    def url(self) -> MetricsUrl:
        return MetricsUrl("127.0.0.1", self.port, "/metrics")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if self.text:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.text)}\r\n\r\n{self.text}".encode())
            await writer.drain()
        writer.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process answers as soon as this machine's other load lets it."""
    monkeypatch.setattr(metrics_page, "CALL_SECONDS", DEADLINE)


@pytest.fixture
async def pages() -> AsyncIterator[list[MetricsPage]]:
    """Two processes that have metrics."""
    made, servers = [MetricsPage(), MetricsPage()], []
    for page in made:
        server = await asyncio.start_server(page.handle, "127.0.0.1", 0)
        page.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    yield made
    for server in servers:
        server.close()


@pytest.mark.parametrize("text", [VLLM, SGLANG, TENSORRT_LLM], ids=["vllm", "sglang", "tensorrt-llm"])
async def test_waiting_requests_of_all_engines_are_added(pages: list[MetricsPage], text: str) -> None:
    overload = MetricsOverload(OverloadRule([page.url for page in pages]))
    assert not overload(""), "nothing is known"
    for values, expected in (((4, 5), False), ((4, 6), True), ((10, 0), True), ((0, 0), False)):
        for page, value in zip(pages, values, strict=True):
            page.text = text % value
        await overload.read()
        assert overload("") is overload("any model") is expected


async def test_any_metric_may_tell_and_those_that_do_not_answer_add_nothing(
    pages: list[MetricsPage], caplog: pytest.LogCaptureFixture
) -> None:
    picker, away = pages
    picker.text = 'fairlead_picker_waiting{pool="a"} 2\nfairlead_picker_waiting{pool="b"} 1.5\n'
    overload = MetricsOverload(OverloadRule([picker.url, away.url], "fairlead_picker_waiting", 3.5))
    for _ in range(2):
        await overload.read()
        assert overload("")
    of_away = [record.levelname for record in caplog.records if vars(record).get("source") == f"127.0.0.1:{away.port}"]
    assert of_away == ["WARNING"], "once"
    away.text = "fairlead_picker_waiting -1\n"
    picker.text = "another 9\n"
    await overload.read()
    assert overload(""), "no answer changes nothing yet"


async def test_after_silence_nothing_is_overloaded(pages: list[MetricsPage]) -> None:
    clock = [0.0]
    pages[0].text = VLLM % 1
    overload = MetricsOverload(OverloadRule([pages[0].url], "", 1.0), lambda: clock[0])
    await overload.read()
    pages[0].text = ""
    for clock[0], expected in ((FRESH_SECONDS, True), (FRESH_SECONDS + 0.01, False)):
        await overload.read()
        assert overload("") is expected
    pages[0].text = VLLM % 1
    await overload.read()
    assert overload("")


async def test_a_host_that_is_not_found_is_silent(pages: list[MetricsPage]) -> None:
    pages[0].text = VLLM % 1
    overload = MetricsOverload(OverloadRule([MetricsUrl("a..b", 80, "/metrics"), pages[0].url], "", 1.0))
    await overload.read()
    assert overload("")


async def test_an_address_that_left_and_fails_when_it_is_back_is_told_again(
    pages: list[MetricsPage], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pages[0].text, addresses = VLLM % 1, ["127.0.0.1"]

    async def addresses_of(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(None, None, None, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses_of)
    overload = MetricsOverload(OverloadRule([MetricsUrl("engines", pages[0].port, "/metrics")], "", 1.0))
    for behind_the_name in (["127.0.0.1", "127.0.0.2"], ["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]):
        addresses[:] = behind_the_name
        await overload.read()
    sources = [vars(record)["source"] for record in caplog.records if record.levelname == "WARNING"]
    assert sources == [f"127.0.0.2:{pages[0].port}"] * 2


def test_a_rule_has_urls_and_perhaps_a_metric_and_a_number() -> None:
    urls = [MetricsUrl("10.0.0.1", 8000, "/metrics"), MetricsUrl("fd00::1", 80, "/m?q=1")]
    for condition, rest in (("", ("", 10.0)), ("#a:b", ("a:b", 10.0)), ("#a>=2.5", ("a", 2.5)), ("#>=3", ("", 3.0))):
        text = f"http://10.0.0.1:8000/metrics, http://[fd00::1]/m?q=1{condition}"
        assert OverloadRule.parse(text) == (urls, *rest)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"overload_metrics": "10.0.0.1:8000/metrics"}, "overload_metrics: expected http://host:port/path"),
        ({"overload_metrics": "http://a:8000"}, "overload_metrics: expected http://host:port/path"),
        ({"overload_metrics": "http://a:99999/m"}, "overload_metrics: Port out of range"),
        ({"overload_metrics": "http://a/m", "scheduler": "a:1"}, "overload_metrics: must not be given with scheduler"),
        ({"overload_metrics": "http://a/m#a b"}, "overload_metrics: expected a metric's name after #, got 'a b'"),
        ({"overload_metrics": "http://a/m#a>=0"}, "overload_metrics: expected a number above 0 after >=, got '0'"),
        ({"overload_metrics": "http://a/m#a>=inf"}, "overload_metrics: expected a number above 0 after >=, got 'inf'"),
        ({"overload_metrics": "http://a/m#>=x"}, "overload_metrics: could not convert"),
    ],
)
def test_mistakes_of_the_options_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ThrottlerConfig(secret="s" * 16, **options)


async def test_limits_hold_while_the_metric_says_so(pages: list[MetricsPage], start_service: StartService) -> None:
    [page, _] = pages
    page.text = VLLM % 0
    url = f"http://127.0.0.1:{page.port}/metrics"
    service = await asyncio.to_thread(
        lambda: start_service("throttler", throttle="oit:1", overload_metrics=f"{url}#>=5")
    )

    def try_it() -> None:
        with client_of(service) as client:
            assert all(client.admits(user="ann") for _ in range(3)), "nothing is overloaded"
            page.text = VLLM % 5
            eventually(lambda: not client.admits(user="ann"), "the limit holds")
            page.text = VLLM % 0
            eventually(lambda: client.admits(user="ann"), "nothing is overloaded any more")

    await asyncio.to_thread(try_it)

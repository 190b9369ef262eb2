"""A long prompt at an engine that caches prefixes: its caller sees nothing of the links in which it is computed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fairlead.v1 import inference_pb2
from tests import services
from tests.fakes.served_engine.process import EngineProcess
from tests.fakes.served_engine.tokens import output_after
from tests.services import Process, Stack, eventually
from tests.system.faults.load import caller, output_of, request_for

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")
BUDGET, BLOCK, LONG = 64, 16, 380
LINK = BUDGET // 4 * 3  # tokens that a link adds


class Chained:
    """An engine, its adapter and a gateway."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.engine = EngineProcess(stack.directory / "engine.log", step_seconds=0.02, budget=BUDGET, blocks=1025)
        events = f"{self.engine.events},{self.engine.replay}"
        stack.adapter("w", engine=self.engine.address, token_budget=BUDGET, kv_events=events)
        self.gateway: Process = stack.gateway(throttle="none")

    def call(self, text: str, tokens: int = 3) -> list[inference_pb2.GenerateResponse]:
        with caller(self.gateway.address) as stub:
            return list(stub.Generate(request_for(text, tokens), timeout=services.DEADLINE))

    def count(self, name: str) -> int:
        return int(self.engine.metric(f"served_engine_{name}"))

    def await_idle(self) -> None:
        """Wait until neither the engine nor the adapter has a request."""

        def is_idle() -> bool:
            [member] = self.stack.status().cluster.members
            return not (member.load.running or member.load.waiting or self.engine.metric("vllm:num_requests_running"))

        eventually(is_idle, "all is idle")


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chained]:
    chained = Chained(Stack(tmp_path_factory.mktemp("chained")))
    yield chained
    chained.engine.kill()
    chained.stack.close()


def long_text(begin: str) -> str:
    return begin.ljust(LONG, "z")


def test_output_and_usage_are_those_of_one_prompt_of_which_nothing_is_computed_twice(chained: Chained) -> None:
    text = long_text("a tide")
    requests, computed = chained.count("requests"), chained.count("computed_tokens")
    responses = chained.call(text)
    assert output_of(responses) == output_after(text, 3)
    usage = responses[-1].finished.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (LONG, 0, 3)
    assert usage.service == LONG + 2 * 3
    assert chained.count("requests") - requests == -(-LONG // LINK)
    assert chained.count("computed_tokens") - computed == LONG + 3 - 1, "the last token is not computed"


def test_the_next_prompt_alone_finds_cached_blocks_of_links(chained: Chained) -> None:
    text, cached = long_text("a moon"), (LONG - 1) // BLOCK * BLOCK
    first = chained.call(text)[-1].finished.usage
    assert first.cached_tokens == 0
    eventually(lambda: chained.call(text)[-1].finished.usage.cached_tokens == cached, "the prefix is found")
    assert chained.call(text)[-1].finished.usage.service == LONG - cached + 2 * 3


@pytest.mark.parametrize("link", [1, 2, 7, 8])
@pytest.mark.parametrize(("fault", "code"), [("refuse", "INVALID_ARGUMENT"), ("fail at", "UNAVAILABLE")])
def test_an_error_at_any_link_is_that_of_the_call(chained: Chained, link: int, fault: str, code: str) -> None:
    before = f"{fault[::-1]} {link} ".ljust((link - 1) * LINK, "x")
    with pytest.raises(grpc.RpcError) as raised:
        chained.call(f"{before}{fault}".ljust(LONG, "y"))
    assert raised.value.code().name == code, raised.value.details()
    chained.await_idle()
    eventually(lambda: output_of(chained.call("short")) == output_after("short", 3), "the adapter serves again")


@pytest.mark.parametrize("link", [1, 3, 7])
def test_a_call_that_is_cancelled_at_a_link_gets_no_further_one(chained: Chained, link: int) -> None:
    requests = chained.count("requests")
    with caller(chained.gateway.address) as stub, ThreadPoolExecutor(1) as thread:
        call = stub.Generate(request_for(long_text(f"cancelled at {link}"), 20), timeout=services.DEADLINE)
        read = thread.submit(list, call)
        eventually(lambda: chained.count("requests") >= requests + link, "the link is there")
        call.cancel()
        assert isinstance(read.exception(), grpc.RpcError)
    chained.await_idle()
    ended = chained.count("requests")
    assert output_of(chained.call("short")) == output_after("short", 3)
    assert chained.count("requests") == ended + 1

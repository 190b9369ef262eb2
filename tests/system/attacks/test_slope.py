"""Calls of all kinds at every service: the memory that a third of them has taken is enough for all further ones."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import inference_pb2_grpc
from serving.envoy import ext_proc_pb2, ext_proc_pb2_grpc
from tests.fakes.served_engine.process import EngineProcess
from tests.services import Stack
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.system.faults.load import request_for
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, TEXT, TOKENIZE, HttpClient
from tests.unit.throttler.rate_limit_client import RateLimitClient

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")
CALLERS = 8
USERS = 8
MOST_GROWTH = 8  # MiB, of each service
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
Kind = Callable[[int], object]  # a call with this number; what it returns is counted


class Services:
    """All services of a deployment: a gateway before a worker and an adapter, a picker, a rate limit service."""

    def __init__(self, directory: Path) -> None:
        self._stack = Stack(directory)
        self._stack.worker("a", model="tiny", kv_tokens=2**16)
        self._engine = EngineProcess(directory / "engine.log", model="served")
        self._engine.metric("served_engine_most_requests")
        events = {"kv_events": f"{self._engine.events},{self._engine.replay}"}
        self._stack.adapter("beside", engine=self._engine.address, **events)
        # What is remembered reaches its bound soon, so that only the rest could grow.
        profiles = directory / "profiles.yaml"
        profiles.write_text("limits: {max_interactions: 64}\n")
        bounds = {"response_store_mib": 1, "profiles": profiles}
        gateway = self._stack.gateway(http_listen="127.0.0.1:0", throttle="oit", **bounds)
        picker = self._stack.start("endpoint_picker", endpoints=self._engine.address)
        throttler = self._stack.start("throttler", throttle="oit:1000000000,1000000000")
        self.processes = {
            "gateway": gateway,
            "scheduler": self._stack.scheduler,
            "worker": self._stack.workers["a"],
            "adapter": self._stack.workers["beside"],
            "picker": picker,
            "throttler": throttler,
        }
        self._http = HttpClient(gateway.wait_for("listening")["http_port"])
        self._channels = [grpc.insecure_channel(each.address) for each in (gateway, picker, throttler)]
        to_gateway, to_picker, to_throttler = self._channels
        self._inference = inference_pb2_grpc.InferenceStub(to_gateway)
        self._picker = ext_proc_pb2_grpc.ExternalProcessorStub(to_picker)
        self._limits = RateLimitClient(to_throttler)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._engine.kill()
        self._stack.close()

    def kinds(self) -> Sequence[Kind]:
        return (
            lambda n: self._post(n, CHAT, messages=HELLO),
            lambda n: self._post(n, CHAT, messages=HELLO, stream=True, tools=[TOOL]),
            lambda n: self._post(n, CHAT, messages=[{"role": "user", "content": f"story {n}"}], model="served"),
            lambda n: self._post(n, RESPONSES, input=f"question {n}", max_output_tokens=4),
            lambda n: self._post(n, TEXT, prompt=f"once {n}", n=2, logprobs=2, echo=True),
            lambda n: self._post(n, MESSAGES, messages=HELLO, metadata={"user_id": f"user {n % USERS}"}),
            lambda n: self._post(n, TOKENIZE, prompt=f"count {n}"),
            lambda n: self._post(n, CHAT, messages=HELLO, response_format={"type": "json_object"}),
            lambda n: self._post(n, CHAT, messages=HELLO, tool_choice=[n]),
            lambda n: self._post(n, CHAT, messages=HELLO, model=f"nobody's {n}"),
            self._leave,
            self._journey,
            self._pick,
            self._limit,
        )

    def _post(self, number: int, path: str, **fields: object) -> int:
        session = {"x_session_id": f"session {number}"} if number % 3 == 0 else {}
        body = {"model": "tiny", "max_tokens": 4, **fields}
        return self._http.post(path, body, x_fairlead_user=f"user {number % USERS}", **session).status

    def _leave(self, number: int) -> str:
        """Hang up before there is an answer."""
        self._http.begin(CHAT, {"model": "tiny", "messages": HELLO, "stream": True, "max_tokens": 50}).close()
        return "left"

    def _journey(self, number: int) -> str:
        """Make a call of an interaction, which stays open."""
        request = request_for(f"journey {number}", 4)
        request.model, request.interaction.id = "tiny", f"journey {number}"
        return str(list(self._inference.Generate(request, timeout=60))[-1].WhichOneof("event"))

    def _pick(self, number: int) -> str:
        """Have a request placed, and tell its answer."""
        placed, answered = ext_proc_pb2.ProcessingRequest(), ext_proc_pb2.ProcessingRequest()
        placed.request_headers.headers.headers.add(key="x-fairlead-user", raw_value=b"user %d" % (number % USERS))
        body = ext_proc_pb2.HttpBody(
            body=b'{"model": "lora %d", "prompt": "request %d"}' % (number, number), end_of_stream=True
        )
        answered.response_headers.headers.headers.add(key=":status", raw_value=b"200")
        messages = (placed, ext_proc_pb2.ProcessingRequest(request_body=body), answered)
        first = next(iter(self._picker.Process(iter(messages), timeout=60)))
        return str(first.WhichOneof("response"))

    def _limit(self, number: int) -> int:
        return self._limits.ask({"user": f"user {number % USERS}", "app": f"app {number % 7}"}).overall_code


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Services]:
    services = Services(tmp_path)
    yield services
    services.close()


def make(kinds: Sequence[Kind], numbers: Iterator[int]) -> Counter[str]:
    """Make calls of all kinds in turn, `CALLERS` at a time, and count how they end."""
    ends, lock = Counter[str](), threading.Lock()

    def caller() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            end = f"{kinds[number % len(kinds)](number)}"
            with lock:
                ends[end] += 1

    with ThreadPoolExecutor(CALLERS) as pool:
        for done in [pool.submit(caller) for _ in range(CALLERS)]:
            done.result()
    return ends


def test_memory_is_level_after_a_third_of_the_calls(deployed: Services, sizes: Sizes, report: Report) -> None:
    third = sizes.slope // 3
    kinds = deployed.kinds()
    warming = make(kinds, iter(range(third)))
    memory = Memory(**deployed.processes)
    ends = make(kinds, iter(range(third, sizes.slope)))
    report.add(f"calls of {len(kinds)} kinds after {third:,} of them", ends, memory)
    report.target(
        f"memory of the service that grew most, from call {third:,} to {sizes.slope:,}",
        f"{memory.risen} MiB more",
        f"below {MOST_GROWTH} MiB",
    )
    assert {"200", "400", "404", "left"} <= ends.keys() <= {*warming, "200", "400", "404", "left"}, ends
    assert not [name for name, each in deployed.processes.items() if "Traceback" in each.log]
    assert memory.risen < MOST_GROWTH, str(memory)

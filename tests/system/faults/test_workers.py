"""Workers that die, freeze, drain or cannot be reached: callers notice nothing, or one clear status."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import inference_pb2, inference_pb2_grpc
from tests import services
from tests.engines import ENGINES, VLLM_DEADLINE, VLLM_SETTINGS
from tests.services import Process, Stack, eventually
from tests.system.faults.load import Load, assert_all_completed, caller, output_of, request_for
from tests.system.faults.route import Route
from tests.system.faults.small_model import save_small_model

STEP = 0.02  # an output of LONG tokens takes 3 s, in which a test has to come to its fault
FAST = 0.0005
LONG = 150
UPDATED = 800  # tokens of an output that lasts for three starts of a worker
Inference = inference_pb2_grpc.InferenceStub


each_engine = pytest.mark.parametrize("slow", ENGINES, indirect=True)


@pytest.fixture
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """The settings of a worker that a test can stop within a long output: of the fake engine, unless the test names
    another."""
    if getattr(request, "param", "fake") == "fake":
        return {"engine": f"fake:{STEP}"}
    monkeypatch.setattr(services, "DEADLINE", VLLM_DEADLINE)
    return {**VLLM_SETTINGS, "model": save_small_model(tmp_path / "small")}


@pytest.fixture
def gateway(stack: Stack, slow: dict[str, object]) -> Process:
    """Before two slow workers."""
    for name in ("a", "b"):
        stack.worker(name, **slow, drain_seconds=0.3)
    return stack.gateway(throttle="none")


@pytest.fixture
def stub(gateway: Process) -> Iterator[Inference]:
    with caller(gateway.address) as stub:
        yield stub


def undisturbed_output(stub: Inference, prompt: str = "Tell me") -> tuple[str, list[int]]:
    return output_of(list(stub.Generate(request_for(prompt, LONG), timeout=services.DEADLINE)))


class Begun:
    """A call of which a few tokens have come; its output is compared with that of an equal call before it."""

    def __init__(
        self, stub: Inference, prompt: str = "Tell me", undisturbed: tuple[str, list[int]] | None = None
    ) -> None:
        self.undisturbed = undisturbed or undisturbed_output(stub, prompt)
        self._call = stub.Generate(request_for(prompt, LONG), timeout=services.DEADLINE)
        self._begun: list[inference_pb2.GenerateResponse] = list(itertools.islice(self._call, 6))
        self.worker = self._begun[0].accepted.worker

    def assert_undisturbed(self) -> None:
        """One unbroken stream: no token twice, none lost."""
        responses = [*self._begun, *self._call]
        assert output_of(responses) == self.undisturbed
        assert len(self.undisturbed[1]) == LONG
        kinds = [response.WhichOneof("event") for response in responses]
        assert kinds.count("accepted") == kinds.count("finished") == 1


def other(worker: str) -> str:
    return "b" if worker == "a" else "a"


def service(stack: Stack) -> dict[str, float]:
    """What each attached worker has served in all."""
    return {entry.worker: sum(client.service for client in entry.clients) for entry in stack.status().services}


@each_engine
def test_killed_in_mid_stream_and_charged_once(stack: Stack, stub: Inference) -> None:
    undisturbed = undisturbed_output(stub)
    eventually(lambda: sum(service(stack).values()) >= 2 * LONG, "the first call's service is reported")
    call = Begun(stub, undisturbed=undisturbed)
    before = service(stack).get(other(call.worker), 0.0)
    stack.workers[call.worker].kill()
    call.assert_undisturbed()
    charged = eventually(lambda: service(stack).get(other(call.worker), 0.0) - before, "the rest is served")
    assert charged < 2 * LONG, "the rest of the output, and no prompt"


@each_engine
def test_killed_before_the_first_token(stack: Stack, slow: dict[str, object]) -> None:
    for name in ("a", "b"):
        stack.worker(name, **slow, max_running=1)
    gateway = stack.gateway(throttle="none")
    with caller(gateway.address) as stub, ThreadPoolExecutor(4) as callers:

        def call(number: int) -> list[inference_pb2.GenerateResponse]:
            return list(stub.Generate(request_for(f"Story {number}", LONG), timeout=services.DEADLINE))

        calls = [callers.submit(call, number) for number in range(4)]
        eventually(lambda: sum(m.load.waiting for m in stack.status().cluster.members) == 2, "two wait in queues")
        stack.workers["a"].kill()
        outputs = [output_of(done.result()) for done in calls]
        assert outputs == [output_of(call(number)) for number in range(4)]
    attempts = [line["attempts"] for line in gateway.logged("call ended")[:4]]
    assert sorted(attempts) == [1, 1, 2, 2], "the one that ran and the one that waited moved"


@each_engine
def test_frozen_and_awake_again(stack: Stack, gateway: Process, stub: Inference) -> None:
    call = Begun(stub)
    stack.workers[call.worker].pause()
    call.assert_undisturbed()
    stack.workers[call.worker].resume()
    eventually(lambda: len(stack.status().cluster.members) == 2, "it attaches again")
    eventually(lambda: stack.requests() == 0, "what it had is aborted, not finished for nobody")
    with Load(gateway.address, threads=4, max_tokens=10) as load:
        load.more(12)
    assert_all_completed(load)


@pytest.mark.e2e
def test_talking_but_without_steps(tmp_path: Path) -> None:
    stack = Stack(tmp_path, step_timeout=0.5)
    try:
        stack.worker("a", engine="fake:300")
        stack.worker("b")
        gateway = stack.gateway(throttle="none")
        stack.workers["b"].pause()  # so that the call goes to the other one
        with caller(gateway.address) as stub:
            stack.await_workers(stub, 1)
            call = stub.Generate(request_for("Tell me", 10), timeout=120)
            eventually(lambda: not stack.status().cluster.members, "it counts as absent")
            stack.workers["b"].resume()
            responses = list(call)
        assert responses[0].accepted.worker == "b"
        ended = gateway.wait_for("call ended")
        assert (ended["outcome"], ended["worker"], ended["attempts"]) == ("COMPLETED", "b", 2)
    finally:
        stack.close()


@each_engine
def test_drained_with_a_call_that_takes_too_long(stack: Stack, stub: Inference) -> None:
    call = Begun(stub)
    assert stack.workers[call.worker].terminate() == 0
    call.assert_undisturbed()


@each_engine
def test_killed_while_it_drains(stack: Stack, slow: dict[str, object]) -> None:
    for name in ("a", "b"):
        stack.worker(name, **slow, drain_seconds=60)
    with caller(stack.gateway(throttle="none").address) as stub:
        call = Begun(stub)
        stack.workers[call.worker].begin_terminate()
        stack.workers[call.worker].wait_for("draining")
        stack.workers[call.worker].kill()
        call.assert_undisturbed()


def instances(stack: Stack) -> set[str]:
    return {member.instance for member in stack.status().cluster.members}


def attached_since(stack: Stack, before: set[str]) -> set[str]:
    return instances(stack) - before


# With vLLM, which takes longer to start than to compute any output, there would be no call left to move.
def test_a_rolling_update_ends_no_call(stack: Stack, gateway: Process, stub: Inference) -> None:
    request = request_for("Tell me", UPDATED)
    call = stub.Generate(request, timeout=600)
    begun = list(itertools.islice(call, 6))
    worker = begun[0].accepted.worker
    for step in (2 * STEP, 2 * STEP, FAST, FAST):
        before = instances(stack)
        assert stack.workers[worker].terminate() == 0, "its call goes to the only other one"
        stack.worker(worker, engine=f"fake:{step}", drain_seconds=0.3)
        eventually(partial(attached_since, stack, before), "another of that name attaches")
        worker = other(worker)
    responses = [*begun, *call]
    assert gateway.wait_for("call ended")["attempts"] == 5
    assert output_of(responses) == output_of(list(stub.Generate(request, timeout=60)))


@each_engine
def test_all_at_once_and_new_ones(stack: Stack, slow: dict[str, object], gateway: Process, stub: Inference) -> None:
    call = stub.Generate(request_for("Tell me", LONG), timeout=services.DEADLINE)
    next(call)
    for worker in stack.workers.values():
        worker.begin_kill()  # the last one could end the call while the first one ends
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    stack.worker("c", **slow)

    def served() -> bool:
        try:
            return bool(list(stub.Generate(request_for("Tell me", 4), timeout=services.DEADLINE)))
        except grpc.RpcError:
            return False

    eventually(served, "the new worker serves")
    assert gateway.logged("call ended")[-1]["worker"] == "c"


@each_engine
def test_cut_off_from_the_gateway(stack: Stack, slow: dict[str, object]) -> None:
    stack.worker("a", **slow)
    address = stack.workers["a"].address
    with Route(address) as route:
        stack.replace_worker("a", listen=address, advertise=route.address, **slow)
        with caller(stack.gateway(throttle="none").address) as stub:
            call = Begun(stub)
            stack.worker("b", **slow)
            stack.await_workers(stub)
            route.cut()
            call.assert_undisturbed()
            eventually(lambda: stack.requests() == 0, "the worker gave up what nobody hears")


@each_engine
def test_cut_off_from_the_scheduler(stack: Stack, slow: dict[str, object]) -> None:
    with Route(stack.scheduler.address) as route:
        stack.worker("a", **slow, scheduler=route.address)
        stack.worker("b", **slow)
        gateway = stack.gateway(throttle="none")
        with Load(gateway.address, threads=4, max_tokens=20) as load:
            load.more(8)
            route.cut()
            eventually(lambda: len(stack.status().cluster.members) == 1, "the scheduler gives it up")
            load.more(8)
            route.heal()
            eventually(lambda: len(stack.status().cluster.members) == 2, "it attaches again")
            load.more(8)
        assert_all_completed(load)
        assert {line["attempts"] for line in gateway.logged("call ended")} == {1}, "what it had begun it finished"

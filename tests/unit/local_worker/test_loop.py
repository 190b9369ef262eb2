"""The engine loop, with and without an engine that runs ahead.

A failing step ends its own requests and those of steps built on it. A defect ends the process instead of hanging it.
Outputs do not depend on the steps in flight.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import Batch, EngineLost, PendingStep, StepResult
from local_worker.core.events import RequestEnded, WorkerUpdate
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.engine.fake import FakeEngine
from local_worker.loop import EngineLoop
from local_worker.tokenizer import ByteTokenizer
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request

WAIT = 30
BUDGET = 64
AHEAD = pytest.mark.parametrize("ahead", [0, 1])


class Failure:
    """A step whose end raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def wait(self) -> StepResult:
        raise self.error


class Failing(FakeEngine):
    """The fake engine, with some steps that raise: when they are launched, or when they are waited for."""

    def __init__(
        self, ahead: int, waits: Sequence[BaseException | None] = (), launches: Sequence[BaseException | None] = ()
    ) -> None:
        super().__init__(257, 0.0, BLOCK, ahead)
        self.waits = list(waits)
        self.launches = list(launches)
        self.closed = False
        self.lost = threading.Event()

    def check(self) -> None:
        if self.lost.is_set():
            raise EngineLost("gone")

    def close(self) -> None:
        self.closed = True

    def launch(self, batch: Batch) -> PendingStep:  # type: ignore[override]  # it stands for any engine
        error = self.launches.pop(0) if self.launches else None
        if error is not None:
            raise error
        done = super().launch(batch)
        error = self.waits.pop(0) if self.waits else None
        return Failure(error) if error is not None else done


class Device(FakeEngine):
    """An engine that runs ahead, whose steps last for `seconds` and begin one after the other. In the midst of step
    number `visited` it calls `visit`."""

    def __init__(self, seconds: float, visited: int, visit: Callable[[], None]) -> None:
        super().__init__(257, 0.0, BLOCK, 1)
        self._seconds, self._visited, self._visit = seconds, visited, visit
        self._due = 0.0
        self.entered: list[list[int]] = []  # by step: the requests that entered, by arrival

    def launch(self, batch: Batch) -> PendingStep:  # type: ignore[override]  # it stands for any engine
        began = max(time.monotonic(), self._due)
        self._due = began + self._seconds
        if len(self.entered) == self._visited:
            threading.Timer(began + self._seconds / 4 - time.monotonic(), self._visit).start()
        self.entered.append([entry.request for entry in batch.entered])
        return Until(self._due, super().launch(batch))


class Until:
    """A step that ends at `due`, in monotonic seconds."""

    def __init__(self, due: float, step: PendingStep) -> None:
        self._due, self._step = due, step

    def wait(self) -> StepResult:
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self._step.wait()


class Listener:
    """The receiver of a loop's events."""

    def __init__(self, engine: FakeEngine, policy: str = "fcfs") -> None:
        self.deliveries: queue.Queue[WorkerUpdate] = queue.Queue()
        self.deaths: queue.Queue[BaseException] = queue.Queue()
        self.batcher = make_batcher(token_budget=BUDGET, policy=policy)
        self.loop = EngineLoop(self.batcher, engine, self.deliveries.put, self.deaths.put)
        self.tokens: dict[str, list[int]] = {}
        self.texts: dict[str, str] = {}
        self.ends: list[RequestEnded] = []

    def submit(self, request: Request, *stop: str) -> None:
        request.text = OutputText(ByteTokenizer().decoder(), stop)
        self.loop.submit(request)

    def receive(self) -> WorkerUpdate:
        """Return the next WorkerUpdate, after recording it."""
        delivery = self.deliveries.get(timeout=WAIT)
        for entry in delivery.events.tokens:
            name = entry.request.id
            self.tokens[name] = [*self.tokens.get(name, []), *entry.tokens]
            self.texts[name] = self.texts.get(name, "") + entry.text
        self.ends += delivery.events.ended
        return delivery

    def receive_ends(self, count: int) -> WorkerUpdate:
        """Wait until `count` requests have ended in all; return the last WorkerUpdate."""
        while True:
            delivery = self.receive()
            if len(self.ends) >= count:
                return delivery

    def ask(self, number: int) -> tuple[Outcome, WorkerUpdate]:
        self.submit(make_request([1, 2, 3], arrival=number))
        delivery = self.receive_ends(len(self.ends) + 1)
        return self.ends[-1].outcome, delivery

    def said(self) -> dict[str, tuple[Outcome, FinishReason | None, str, int]]:
        """Return the outcome of each request."""
        return {end.request.id: (end.outcome, end.reason, end.text, end.request.output_tokens) for end in self.ends}

    def stop(self) -> None:
        """Assert that no request is left and that none ended twice."""
        self.loop.stop()
        while not self.deliveries.empty():
            self.receive()
        assert self.deaths.empty()
        assert len({end.request.id for end in self.ends}) == len(self.ends)
        queue = self.batcher.queue
        assert (len(queue.running), len(queue.waiting), queue.cache.referenced) == (0, 0, 0)
        self.batcher.check_invariants()


def listening(engine: FakeEngine) -> Listener:
    listener = Listener(engine)
    listener.loop.start()
    return listener


@AHEAD
def test_a_failing_step_ends_its_requests_and_the_loop_goes_on(ahead: int) -> None:
    listener = listening(Failing(ahead, [RuntimeError("out of memory")]))
    outcome, _ = listener.ask(0)
    assert outcome is Outcome.INTERNAL
    outcome, after = listener.ask(1)
    assert outcome is Outcome.COMPLETED
    assert after.healthy
    listener.stop()


@AHEAD
@pytest.mark.parametrize("lost", [{"launches": [EngineLost("gone")]}, {"waits": [EngineLost("gone")]}])
def test_a_lost_engine_ends_the_loop_and_no_request(ahead: int, lost: dict[str, Any]) -> None:
    """The worker dies of it, and gateways place its requests elsewhere; an end as INTERNAL would lose them."""
    listener = listening(Failing(ahead, **lost))
    listener.submit(make_request([1, 2, 3], arrival=0))
    assert isinstance(listener.deaths.get(timeout=WAIT), EngineLost)
    assert listener.ends == []


def test_an_idle_worker_tells_whose_pages_are_cached_after_its_last_request() -> None:
    listener = listening(FakeEngine(257, 0.0, BLOCK, 0))
    listener.submit(make_request(list(range(3 * BLOCK)), arrival=0))
    listener.receive_ends(1)
    while (load := listener.receive().load) is None or not sum(share.pages for share in load.pages.clients):
        pass
    listener.stop()


def test_a_loop_that_stops_closes_its_engine() -> None:
    engine = Failing(0)
    listener = listening(engine)
    assert not engine.closed
    listener.stop()
    assert engine.closed


def test_an_idle_worker_notices_that_its_engine_is_lost() -> None:
    engine = Failing(ahead=0)
    listener = listening(engine)
    outcome, _ = listener.ask(0)
    assert outcome is Outcome.COMPLETED
    engine.lost.set()
    assert isinstance(listener.deaths.get(timeout=WAIT), EngineLost)


@AHEAD
def test_steps_that_keep_failing_are_not_healthy(ahead: int) -> None:
    listener = listening(Failing(ahead, launches=[RuntimeError("a"), RuntimeError("b")]))
    assert listener.ask(0)[1].healthy
    assert not listener.ask(1)[1].healthy
    assert listener.ask(2)[1].healthy
    listener.stop()


def test_requests_of_steps_built_on_a_failed_step_end_once() -> None:
    listener = Listener(Failing(1, [RuntimeError("out of memory")]))
    # The first prompt fills a step; the second is computed in the next, beside the first one's output.
    listener.submit(make_request([1] * BUDGET, arrival=0))
    listener.submit(make_request([2] * 8, arrival=1))
    listener.loop.start()
    assert listener.receive_ends(2).healthy
    assert [end.outcome for end in listener.ends] == [Outcome.INTERNAL] * 2
    assert not listener.tokens
    assert listener.ask(2)[0] is Outcome.COMPLETED
    listener.stop()


def test_a_step_that_cannot_be_launched_does_not_affect_the_step_in_flight() -> None:
    listener = Listener(Failing(1, launches=[None, RuntimeError("out of memory")]))
    listener.submit(make_request([1] * BUDGET, arrival=0, sampling=SamplingParams(max_tokens=1, ignore_eos=True)))
    listener.submit(make_request([2] * 8, arrival=1))
    listener.loop.start()
    listener.receive_ends(2)
    assert {end.request.id: end.outcome for end in listener.ends} == {
        "r0": Outcome.COMPLETED,
        "r1": Outcome.INTERNAL,
    }
    listener.stop()


def everything(ahead: int) -> Listener:
    """Prompts longer than a step, shared prefixes, outputs of all lengths, a stop string."""
    listener = Listener(FakeEngine(257, 0.0, BLOCK, ahead))
    for number in range(12):
        sampling = SamplingParams(max_tokens=1 + 7 * number, ignore_eos=True)
        prompt = [1] * (3 * BLOCK) + [number] * (1 + 17 * number)
        listener.submit(make_request(prompt, arrival=number, sampling=sampling), *["e"][: number % 2])
    listener.loop.start()
    listener.receive_ends(12)
    listener.stop()
    return listener


def test_outputs_do_not_depend_on_running_ahead() -> None:
    plain, ahead = everything(0), everything(1)
    assert ahead.tokens == plain.tokens
    assert ahead.texts == plain.texts
    assert ahead.said() == plain.said()
    assert {end.reason for end in plain.ends} == {FinishReason.STOP, FinishReason.LENGTH}


@AHEAD
def test_a_request_that_is_aborted_during_a_step_ends_once(ahead: int) -> None:
    listener = listening(FakeEngine(257, 0.01, BLOCK, ahead))  # 20 s for the whole output
    request = make_request([1], sampling=SamplingParams(max_tokens=2000, ignore_eos=True))
    listener.submit(request)
    while not listener.tokens:
        listener.receive()
    listener.loop.abort(request)
    listener.receive_ends(1)
    listener.stop()
    assert listener.ends[0].outcome is Outcome.CANCELLED


def test_a_defect_of_the_loop_is_reported() -> None:
    listener = listening(Failing(0, [SystemExit("defect")]))
    listener.submit(make_request([1]))
    assert "defect" in repr(listener.deaths.get(timeout=WAIT))
    listener.loop.stop()


def test_who_comes_during_a_step_is_in_the_next_one_though_the_engine_runs_ahead() -> None:
    newcomer = make_request([4, 5, 6], arrival=1)
    device = Device(0.15, 12, lambda: listener.submit(newcomer))  # later than the delay takes to grow
    listener = Listener(device, "dlpm")
    like = make_batcher(token_budget=BUDGET)
    like.queue.submit(make_request([1, 2, 3], arrival=0), 0.0)
    plan = like.plan(0.0)
    assert plan is not None
    for _ in range(64):
        listener.batcher.timed(plan, 0.15)  # as steps would have taught it
    listener.submit(make_request([1, 2, 3], sampling=SamplingParams(max_tokens=16), arrival=0))
    listener.loop.start()
    listener.receive_ends(2)
    listener.stop()
    assert device.entered.index([1]) == 13

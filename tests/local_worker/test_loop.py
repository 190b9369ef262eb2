"""The engine loop: a failing step ends its own requests, a defect ends the process instead of hanging it."""

import queue

from fairlead.outcomes import Outcome
from local_worker.core.batch import Batch, StepResult
from local_worker.engine.fake import FakeEngine
from local_worker.job import Job
from local_worker.loop import EngineLoop, Outbox
from local_worker.stop_strings import StopStrings
from local_worker.tokenizer import ByteTokenizer
from tests.local_worker.engine.driving import make_batcher, make_request

WAIT = 30


class Failing:
    """The fake engine, with some steps that raise."""

    def __init__(self, *failures: BaseException | None) -> None:
        self.failures = list(failures)
        self.engine = FakeEngine(257, 0.0)

    def step(self, batch: Batch) -> StepResult:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return self.engine.step(batch)


class Listener:
    """Gets what a loop says."""

    def __init__(self, engine: Failing) -> None:
        self.outboxes: queue.Queue[Outbox] = queue.Queue()
        self.deaths: queue.Queue[BaseException] = queue.Queue()
        self.batcher = make_batcher()
        self.loop = EngineLoop(self.batcher, engine, self.outboxes.put, self.deaths.put)
        self.loop.start()

    def ask(self, number: int) -> tuple[Outcome, Outbox]:
        request = make_request([1, 2, 3], arrival=number)
        job = Job(request, 1, ByteTokenizer().decoder(), StopStrings(()), queued_unix_ns=1)
        self.loop.submit("gateway", job)
        while True:
            outbox = self.outboxes.get(timeout=WAIT)
            for ended in outbox.to("gateway").ended:
                if ended.request_id == request.id:
                    return Outcome(ended.outcome), outbox


def test_a_failing_step_ends_its_requests_and_the_loop_goes_on() -> None:
    listener = Listener(Failing(RuntimeError("out of memory")))
    outcome, _ = listener.ask(0)
    assert outcome is Outcome.INTERNAL
    outcome, after = listener.ask(1)
    assert outcome is Outcome.COMPLETED
    assert after.healthy
    listener.loop.stop()
    listener.batcher.check_invariants()


def test_steps_that_keep_failing_are_not_healthy() -> None:
    listener = Listener(Failing(RuntimeError("a"), RuntimeError("b")))
    assert listener.ask(0)[1].healthy
    assert not listener.ask(1)[1].healthy
    assert listener.ask(2)[1].healthy
    listener.loop.stop()


def test_a_defect_is_reported_not_hung_on() -> None:
    listener = Listener(Failing(SystemExit("defect")))
    listener.loop.submit("gateway", Job(make_request([1]), 1, ByteTokenizer().decoder(), StopStrings(()), 1))
    assert "defect" in repr(listener.deaths.get(timeout=WAIT))
    listener.loop.stop()

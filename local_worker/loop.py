"""The engine loop: one thread that owns batcher, engine and decoders, and never touches the event loop's objects.

Commands come in through a lock-free inbox, everything that happened in a step goes out in one call of `deliver`. The
gRPC side therefore stays responsive however long a forward pass takes. What becomes of a request the job table decides.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from local_worker.core.batch import Engine, PendingStep
from local_worker.core.batcher import Batcher
from local_worker.core.job import Job
from local_worker.core.job_table import JobTable
from local_worker.core.plan import Plan
from local_worker.step_events import Sink, StepEvents, make_step_events

log = logging.getLogger(__name__)
# A second failure in a row is no accident of one batch: the worker should stop being given work.
UNHEALTHY_AFTER = 2
IDLE_SECONDS = 0.5
STEP_AVERAGE = 0.1  # weight of the newest step in the moving average


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step under way."""

    plan: Plan
    pending: PendingStep


class EngineLoop:
    """Launches a step and waits for the oldest that is under way: the one just launched or, with an engine that runs
    ahead, the one before, so that the device computes while the host deals with what came of it.

    Runs until `stop`. On its own thread it calls `deliver` after every turn that changed something, and `died` when it
    ends by a defect: a worker without its loop serves nobody and must not look alive."""

    def __init__(
        self,
        batcher: Batcher,
        engine: Engine,
        deliver: Callable[[StepEvents], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._batcher = batcher
        self._engine = engine
        self._deliver = deliver
        self._died = died
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._jobs: JobTable[Sink] = JobTable(batcher)
        self._steps: deque[LaunchedStep] = deque()  # under way, the oldest first
        self._failures = 0
        self._step_seconds = 0.0
        self.stepping_since: float | None = None  # monotonic time; read by other threads
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the steps under way and wait for it."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def submit(self, job: Job[Sink]) -> None:
        """Queue `job`; its events go to its owner. Any thread."""
        self._post(lambda: self._jobs.submit(job, time.monotonic()))

    def abort(self, sink: Sink, request_id: str, attempt: int) -> None:
        """End a request of `sink` within one step, outcome CANCELLED; unknown ones are ignored. Any thread."""
        self._post(lambda: self._jobs.abort(sink, request_id, attempt, time.monotonic()))

    def abort_all(self, sink: Sink) -> None:
        """End every request of `sink`: its stream broke. Any thread."""
        self._post(lambda: self._jobs.abort_all(sink, time.monotonic()))

    def flush_cache(self) -> None:
        """Empty the prefix cache of what nobody uses. Any thread."""
        self._post(self._batcher.cache.flush)

    def _post(self, command: Callable[[], None]) -> None:
        self._inbox.append(command)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._flush()  # what there is to say before anything has come
            self._turns()
        except BaseException as error:
            log.critical("the engine loop died", exc_info=error)
            self._died(error)

    def _turns(self) -> None:
        while not self._stopping:
            self._wake.clear()
            worked = self._turn()
            if not worked and not self._inbox and not self._stopping:
                self._wake.wait(self._idle_seconds())
        if self._finish_all_but(0):
            self._flush()

    def _idle_seconds(self) -> float:
        deadline = self._jobs.next_deadline()
        if deadline is None:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(0.0, deadline - time.monotonic()))

    def _turn(self) -> bool:
        """One turn: commands, expiries, a step begun and one finished. False when there was nothing to compute."""
        commands = len(self._inbox)
        for _ in range(commands):
            self._inbox.popleft()()
        expired = self._jobs.expire(time.monotonic())
        plan = self._jobs.plan(time.monotonic())
        if plan is not None:
            self._launch(plan)
        finished = self._finish_all_but(self._engine.ahead if plan is not None else 0)
        worked = plan is not None or finished
        if commands or expired or worked:
            self._flush()
        return worked

    def _launch(self, plan: Plan) -> None:
        if not self._steps:
            self.stepping_since = time.monotonic()
        try:
            self._steps.append(LaunchedStep(plan, self._engine.launch(plan.batch)))
        except Exception:
            log.exception("a step could not be launched", extra={"requests": len(plan.batch.slices)})
            self._finish_all_but(0)
            self._fail(plan)

    def _finish_all_but(self, newest: int) -> bool:
        """Wait for the oldest steps; False when there were none."""
        finished = len(self._steps) > newest
        while len(self._steps) > newest:
            self._finish(self._steps.popleft())
        return finished

    def _finish(self, step: LaunchedStep) -> None:
        try:
            result = step.pending.wait()
        except Exception:
            log.exception("forward pass failed", extra={"requests": len(step.plan.batch.slices)})
            self._fail(step.plan)
            return
        self._failures = 0
        self._clock_step()
        self._jobs.commit(step.plan, result, time.monotonic())

    def _fail(self, plan: Plan) -> None:
        """Whatever the model raised, it concerns this step and one that was built on it: their requests end, the worker
        goes on."""
        self._failures += 1
        for lost in (plan, *(step.plan for step in self._steps)):
            self._jobs.fail(lost, time.monotonic())
        self._steps.clear()
        self.stepping_since = None

    def _clock_step(self) -> None:
        """A step took from its launch, or from the end of the one before it, until now."""
        ended = time.monotonic()
        began = self.stepping_since if self.stepping_since is not None else ended
        self._step_seconds += STEP_AVERAGE * (ended - began - self._step_seconds)
        self.stepping_since = ended if self._steps else None

    def _flush(self) -> None:
        healthy = self._failures < UNHEALTHY_AFTER
        self._deliver(make_step_events(self._jobs.take_events(), self._batcher, self._step_seconds, healthy))

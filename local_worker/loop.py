"""The engine loop: one thread that owns the batcher, the engine and the decoders.

The thread shares no objects with the event loop. Commands arrive through a lock-free inbox; all events of a turn leave
in one call of `deliver`. So the gRPC services stay responsive during a long forward pass. The WorkerMachine decides
about requests.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fairlead.outcomes import Outcome
from local_worker.core.batch import Engine, EngineLost, PendingStep
from local_worker.core.batcher import Batcher
from local_worker.core.events import WorkerUpdate
from local_worker.core.machine import (
    AbortRequest,
    RequestsAdmitted,
    RequestsAdvanced,
    RequestsFailed,
    SubmitRequest,
    TimePassed,
    WorkerMachine,
)
from local_worker.core.plan import Plan, PlanDelay
from local_worker.core.request import Request

log = logging.getLogger(__name__)
# Consecutive failed steps after which the worker reports itself as unhealthy: more than one batch is affected.
UNHEALTHY_AFTER = 2
IDLE_SECONDS = 0.5
TICK = TimePassed()


class LaunchedStep(NamedTuple):
    """A step that was launched and is not yet committed."""

    plan: Plan
    pending: PendingStep


class EngineLoop:
    """The loop launches a step and waits for the oldest step in flight.

    That is the step just launched or, with an engine that runs ahead, the previous one: the device computes while the
    host processes the previous results. A step is planned shortly before the one in flight ends, so that whoever comes
    meanwhile is in it. The loop runs until `stop`. On its own thread it calls `deliver` after every
    turn that changed something, and `died` if a defect or the loss of the engine ends it: a worker without its loop
    serves no request and must not seem healthy.
    """

    def __init__(
        self,
        batcher: Batcher,
        engine: Engine,
        deliver: Callable[[WorkerUpdate], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._batcher = batcher
        self._engine = engine
        self._deliver = deliver
        self._died = died
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._machine = WorkerMachine(batcher.queue)
        self._steps: deque[LaunchedStep] = deque()  # steps in flight, oldest first
        self._delay = PlanDelay()
        self._failures = 0
        self.stepping_since: float | None = None  # monotonic time; read by other threads
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread of the loop."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the steps in flight, wait for its end, and close the engine."""
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._engine.close()

    def submit(self, request: Request) -> None:
        """Queue `request`. Any thread may call this."""
        self._post(lambda: self._machine.handle(SubmitRequest(request), time.monotonic()))

    def abort(self, request: Request) -> None:
        """End `request` as CANCELLED within one step; do nothing if it has ended. Any thread may call this."""
        self._post(lambda: self._machine.handle(AbortRequest(request), time.monotonic()))

    def flush_cache(self) -> None:
        """Evict the blocks of the prefix cache that no request uses. Any thread may call this."""
        self._post(self._batcher.queue.cache.flush)

    def _post(self, command: Callable[[], None]) -> None:
        self._inbox.append(command)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._flush()  # reports the initial load
            self._turns()
        except BaseException as error:
            log.critical("the engine loop died", exc_info=error)
            self._died(error)

    def _turns(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._await_plan()
            worked = self._turn()
            if not worked and not self._inbox and not self._stopping:
                self._engine.check()
                self._wake.wait(self._idle_seconds())
        if self._finish_all_but(0):
            self._flush()

    def _await_plan(self) -> None:
        """Wait until it is time to plan the step after the one in flight."""
        if not self._steps or self.stepping_since is None:
            return
        expected = self._batcher.expected_seconds(self._steps[-1].plan)
        due = self.stepping_since + self._delay.seconds(expected)
        while not self._stopping and (left := due - time.monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()

    def _idle_seconds(self) -> float:
        deadline = self._machine.next_deadline()
        if deadline is None:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(0.0, deadline - time.monotonic()))

    def _turn(self) -> bool:
        """Run one turn: execute commands, expire deadlines, launch a step and finish one. Return False if there was
        none."""
        commands = len(self._inbox)
        for _ in range(commands):
            self._inbox.popleft()()
        self._machine.handle(TICK, time.monotonic())
        plan = self._batcher.plan(time.monotonic())
        if plan is not None:
            if plan.admitted:
                self._machine.handle(RequestsAdmitted(plan.admitted), time.monotonic())
            self._launch(plan)
        finished = self._finish_all_but(self._engine.ahead if plan is not None else 0)
        worked = plan is not None or finished
        if commands or worked or self._machine.has_events or self._batcher.queue.cache.has_new_report:
            self._flush()
        return worked

    def _launch(self, plan: Plan) -> None:
        if not self._steps:
            self.stepping_since = time.monotonic()
        try:
            self._steps.append(LaunchedStep(plan, self._engine.launch(plan.batch)))
        except EngineLost:
            raise
        except Exception:
            log.exception("a step could not be launched", extra={"requests": len(plan.batch.slices)})
            self._finish_all_but(0)
            self._fail(plan)

    def _finish_all_but(self, newest: int) -> bool:
        """Finish the oldest steps until `newest` are left; return False if there were none to finish."""
        finished = len(self._steps) > newest
        while len(self._steps) > newest:
            self._finish(self._steps.popleft())
        return finished

    def _finish(self, step: LaunchedStep) -> None:
        began = time.monotonic()
        try:
            result = step.pending.wait()
        except EngineLost:
            raise
        except Exception:
            log.exception("forward pass failed", extra={"requests": len(step.plan.batch.slices)})
            self._fail(step.plan)
            return
        self._failures = 0
        ended = time.monotonic()
        is_known = self._delay.ended(ended - began)
        # The step took the time since its launch or since the end of the previous one, whichever is later.
        seconds = 0.0 if self.stepping_since is None else ended - self.stepping_since
        self._machine.measured_step(seconds)
        self.stepping_since = ended if self._steps else None
        if is_known:
            self._batcher.timed(step.plan, seconds)
        self._machine.handle(RequestsAdvanced(self._batcher.commit(step.plan, result)), time.monotonic())

    def _fail(self, plan: Plan) -> None:
        """End the requests of the failed step and of the steps built on it. The loop goes on after any error of the
        model."""
        self._failures += 1
        for lost in (plan, *(step.plan for step in self._steps)):
            failed = self._batcher.fail(lost)
            self._machine.handle(RequestsFailed(failed, Outcome.INTERNAL, "the forward pass failed"), time.monotonic())
        self._steps.clear()
        self.stepping_since = None

    def _flush(self) -> None:
        self._deliver(self._machine.take_update(time.monotonic(), is_healthy=self._failures < UNHEALTHY_AFTER))

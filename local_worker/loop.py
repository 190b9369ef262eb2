"""The engine loop: one thread that owns batcher, engine and decoders, and never touches the event loop's objects.

Commands come in through a lock-free inbox, everything that happened in a step goes out in one call of `deliver`. The
gRPC side therefore stays responsive however long a forward pass takes.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import scheduler_pb2
from local_worker.core.batch import Engine, Pending, StepResult, TokenLogprobs
from local_worker.core.batcher import Advance, Batcher, Plan
from local_worker.core.request import Request
from local_worker.job import Job
from local_worker.outbox import Outbox, Sink, load_of, services_of, to_proto
from serving.cost import WEIGHT_ONE

log = logging.getLogger(__name__)
# A second failure in a row is no accident of one batch: the worker should stop being given work.
UNHEALTHY_AFTER = 2
IDLE_SECONDS = 0.5
STEP_AVERAGE = 0.1  # weight of the newest step in the moving average


@dataclass(frozen=True, slots=True)
class Step:
    """A step under way."""

    plan: Plan
    pending: Pending


class EngineLoop:
    """Launches a step and waits for the oldest that is under way: the one just launched or, with an engine that runs
    ahead, the one before, so that the device computes while the host deals with what came of it.

    Runs until `stop`. On its own thread it calls `deliver` after every turn that changed something, `checked` after
    every step, and `died` when it ends by a defect: a worker without its loop serves nobody and must not look alive."""

    def __init__(
        self,
        batcher: Batcher,
        engine: Engine,
        deliver: Callable[[Outbox], None],
        died: Callable[[BaseException], None],
        checked: Callable[[Batcher], None] = lambda batcher: None,
    ) -> None:
        self._checked = checked
        self._batcher = batcher
        self._engine = engine
        self._deliver = deliver
        self._died = died
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._jobs: dict[Request, tuple[Sink, Job]] = {}
        self._by_key: dict[tuple[Sink, str, int], Request] = {}
        self._out = Outbox()
        self._steps: deque[Step] = deque()  # under way, the oldest first
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

    def submit(self, sink: Sink, job: Job) -> None:
        """Queue `job`; its events go to `sink`. Any thread."""
        self._post(lambda: self._submit(sink, job))

    def abort(self, sink: Sink, request_id: str, attempt: int) -> None:
        """End a request of `sink` within one step, outcome CANCELLED; unknown ones are ignored. Any thread."""
        self._post(lambda: self._abort(sink, request_id, attempt))

    def abort_all(self, sink: Sink) -> None:
        """End every request of `sink`: its stream broke. Any thread."""
        self._post(lambda: self._abort_all(sink))

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
        deadline = self._batcher.next_deadline()
        if deadline is None:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(0.0, deadline - time.monotonic()))

    def _turn(self) -> bool:
        """One turn: commands, expiries, a step begun and one finished. False when there was nothing to compute."""
        commands = len(self._inbox)
        for _ in range(commands):
            self._inbox.popleft()()
        for request in self._batcher.expired(time.monotonic()):
            self._end(request, Outcome.DEADLINE_EXCEEDED, message="the call's deadline passed")
        plan = self._batcher.plan(time.monotonic())
        if plan is not None:
            self._launch(plan)
        finished = self._finish_all_but(self._engine.ahead if plan is not None else 0)
        worked = plan is not None or finished
        if commands or worked or self._out.ended:
            self._flush()
        return worked

    def _launch(self, plan: Plan) -> None:
        self._announce(plan)
        if not self._steps:
            self.stepping_since = time.monotonic()
        try:
            self._steps.append(Step(plan, self._engine.launch(plan.batch)))
        except Exception:
            log.exception("a step could not be launched", extra={"requests": len(plan.batch.slices)})
            self._finish_all_but(0)
            self._fail(plan)

    def _announce(self, plan: Plan) -> None:
        now = time.time_ns()
        for request in plan.admitted:
            sink, job = self._jobs[request]
            if job.started:
                continue  # it was retracted meanwhile
            job.started, job.scheduled_unix_ns = True, now
            self._out.to(sink).started.add(
                request_id=request.id, attempt=job.attempt, cached_tokens=request.cached, service=job.service
            )

    def _finish_all_but(self, newest: int) -> bool:
        """Wait for the oldest steps; False when there were none."""
        finished = len(self._steps) > newest
        while len(self._steps) > newest:
            self._finish(self._steps.popleft())
        return finished

    def _finish(self, step: Step) -> None:
        try:
            result = step.pending.wait()
        except Exception:
            log.exception("forward pass failed", extra={"requests": len(step.plan.batch.slices)})
            self._fail(step.plan)
            return
        self._failures = 0
        self._clock_step()
        self._commit(step.plan, result)

    def _fail(self, plan: Plan) -> None:
        """Whatever the model raised, it concerns this step and one that was built on it: their requests end, the worker
        goes on."""
        self._failures += 1
        for lost in (plan, *(step.plan for step in self._steps)):
            for request in self._batcher.fail(lost):
                self._end(request, Outcome.INTERNAL, message="the forward pass failed")
        self._steps.clear()
        self.stepping_since = None

    def _clock_step(self) -> None:
        """A step took from its launch, or from the end of the one before it, until now."""
        ended = time.monotonic()
        began = self.stepping_since if self.stepping_since is not None else ended
        self._step_seconds += STEP_AVERAGE * (ended - began - self._step_seconds)
        self.stepping_since = ended if self._steps else None

    def _commit(self, plan: Plan, result: StepResult) -> None:
        sampled = (piece.request for piece in plan.batch.slices if piece.samples)
        logprobs = dict(zip(sampled, result.logprobs, strict=True)) if result.logprobs else {}
        advances = self._batcher.commit(plan, result)
        self._checked(self._batcher)
        for advance in advances:
            self._advance(advance, logprobs.get(advance.request))

    def _advance(self, advance: Advance, logprobs: TokenLogprobs | None) -> None:
        sink, job = self._jobs[advance.request]
        if not job.first_token_unix_ns:
            job.first_token_unix_ns = time.time_ns()
        # The token that ends the output (end of sequence, a stop token) is reported, but is no text.
        is_text = advance.finish is not FinishReason.STOP
        text, stopped = job.text_of(advance.token) if is_text else ("", False)
        self._out.to(sink).tokens.add(
            request_id=advance.request.id,
            attempt=job.attempt,
            token_ids=advance.token.to_bytes(4, "little"),
            text=text,
            logprobs=[to_proto(logprobs)] if logprobs else (),
            service=job.service,
        )
        if stopped:
            if advance.finish is None:
                self._batcher.abort(advance.request)
            self._end(advance.request, Outcome.COMPLETED, FinishReason.STOP)
        elif advance.finish is not None:
            self._end(advance.request, Outcome.COMPLETED, advance.finish, text=job.rest())

    def _submit(self, sink: Sink, job: Job) -> None:
        request = job.request
        key = (sink, request.id, job.attempt)
        if key in self._by_key:
            return  # a repeated message is not a second request
        self._jobs[request] = (sink, job)
        self._by_key[key] = request
        self._out.accepted.append(
            scheduler_pb2.AcceptedRequest(
                request_id=request.id,
                attempt=job.attempt,
                client=request.client,
                prompt_tokens=request.prompt_tokens - request.seed_position,
                weight=request.weight / WEIGHT_ONE,
            )
        )
        try:
            displaced = self._batcher.submit(request, time.monotonic())
        except FairleadError as error:
            self._end(request, error.outcome, message=error.message)
            return
        if displaced is not None:
            message = f"the queue is full, and client {displaced.client!r} has most of it"
            self._end(displaced, Outcome.REJECTED_QUEUE_FULL, message=message)

    def _abort(self, sink: Sink, request_id: str, attempt: int) -> None:
        request = self._by_key.get((sink, request_id, attempt))
        if request is not None:
            self._batcher.abort(request)
            self._end(request, Outcome.CANCELLED, message="cancelled by the caller")

    def _abort_all(self, sink: Sink) -> None:
        for owner, request_id, attempt in list(self._by_key):
            if owner == sink:
                self._abort(sink, request_id, attempt)

    def _end(
        self,
        request: Request,
        outcome: Outcome,
        reason: FinishReason | None = None,
        *,
        message: str = "",
        text: str = "",
    ) -> None:
        sink, job = self._jobs.pop(request)
        del self._by_key[(sink, request.id, job.attempt)]
        self._out.to(sink).ended.add(
            request_id=request.id,
            attempt=job.attempt,
            outcome=outcome.value,
            finish_reason=reason.value if reason is not None else 0,
            message=message,
            usage=job.usage(),
            timings=job.timings(time.time_ns()),
            text=text,
        )
        self._out.ended.append(
            scheduler_pb2.RequestEnd(
                request_id=request.id,
                attempt=job.attempt,
                started=job.started,
                output_tokens=request.output_tokens,
            )
        )

    def _flush(self) -> None:
        out, self._out = self._out, Outbox()
        out.cached, out.evicted = self._batcher.cache.take_events()
        out.healthy = self._failures < UNHEALTHY_AFTER
        out.oldest_queued_at = self._batcher.oldest_queued_at
        out.load = load_of(self._batcher, self._step_seconds)
        out.services = services_of(self._batcher)
        self._deliver(out)

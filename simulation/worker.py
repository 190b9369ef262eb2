"""A worker under virtual time: the driver of its machine, with step times from the profile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fairlead.outcomes import Outcome
from local_worker.core.batch import StepResult
from local_worker.core.delivery import Delivery
from local_worker.core.events import RequestEnded, RequestEvents, WorkerUpdate
from local_worker.core.machine import (
    AbortRequest,
    RequestsAdmitted,
    RequestsAdvanced,
    SubmitRequest,
    TimePassed,
    WorkerMachine,
)
from local_worker.core.plan import Plan
from local_worker.core.request import Request
from serving.blocks import Link
from serving.sampling_params import SamplingParams
from simulation.call import SimulatedCall
from simulation.clock import Action, VirtualClock
from simulation.prompts import CHAIN_SEED, digests_of, output_run
from simulation.run_log import RunLog
from simulation.spec import WorkerSpec
from simulation.step_time import StepTime


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """One attempt of a call at a worker. The gateway ignores events of older attempts."""

    call: SimulatedCall
    number: int  # of the attempt, from 1
    worker: "SimulatedWorker"
    in_interaction: bool
    generated: int  # output tokens of earlier attempts
    charged: bool  # an earlier attempt has brought a token
    tokens_per_message: int
    answer: range = range(0)  # worker: all output tokens of the call


class SimulatedWorker:
    """A worker that passes its updates to `report`. A crash ends a life; steps planned in that life are discarded."""

    def __init__(self, name: str, spec: WorkerSpec, clock: VirtualClock, run_log: RunLog) -> None:
        self.name = name
        self.spec = spec
        self.life = 0
        self.alive = True
        self.slowdown = 1.0
        self.stalled_until = 0.0
        self.step_time = StepTime(spec.profile.coefficients)
        self.batcher = spec.make_batcher()
        self.machine = WorkerMachine(self.batcher.queue)
        self.delivery = Delivery()
        self.report: Callable[[SimulatedWorker, WorkerUpdate], None] = lambda worker, events: None
        self.submitted: Callable[[SimulatedAttempt, Request], None] = lambda attempt, request: None
        self.checked: Callable[[SimulatedWorker], None] = lambda worker: None
        self._clock = clock
        self._run_log = run_log
        self._arrivals = 0
        self._busy = False
        self._ticks = False  # whether a tick of the delivery is planned

    def submit(self, attempt: SimulatedAttempt) -> None:
        """Queue the attempt. A refusal is reported like any other end; so is a dead worker, whose connection is
        refused."""
        if self._puts_off(partial(self.submit, attempt)):
            return
        self._arrivals += 1
        request = self._request(attempt)
        if not self.alive:
            self.report(self, WorkerUpdate(events=RequestEvents(ended=[RequestEnded(request, Outcome.UNAVAILABLE)])))
            return
        attempt.answer = output_run(attempt.call.number, 0, attempt.call.output_tokens)
        self.submitted(attempt, request)
        self.delivery.open(request)
        self.machine.handle(SubmitRequest(request), self._clock.now)
        self._deliver()
        if request.deadline is not None:
            self._clock.at(request.deadline, self._expire)
        if not self._busy:
            self._step()

    def _puts_off(self, action: Action) -> bool:
        """Plan `action` for the end of a stall; return False, and plan nothing, if there is none."""
        is_stalled = self._clock.now < self.stalled_until
        if is_stalled:
            self._clock.at(self.stalled_until, action)
        return is_stalled

    def _expire(self) -> None:
        if self._puts_off(self._expire):
            return
        self.machine.handle(TimePassed(), self._clock.now)
        self._deliver()

    def _request(self, attempt: SimulatedAttempt) -> Request:
        call = attempt.call
        if not call.digests:
            call.digests = digests_of(call.prompt, self.spec.block_tokens)
        tokens, digests = list(call.prompt), list(call.digests)
        if attempt.generated:
            tokens += call.answer[: attempt.generated]
            digests = digests_of(tokens, self.spec.block_tokens)
        return Request(
            id=str(call.number),
            attempt=attempt.number,
            owner=attempt,
            tokens_per_message=attempt.tokens_per_message,
            client=call.client,
            tokens=tokens,
            prompt_tokens=len(tokens),
            digests=digests,
            chain_seed=CHAIN_SEED,
            sampling=SamplingParams(max_tokens=call.output_tokens, ignore_eos=True).after(attempt.generated),
            arrival=self._arrivals,
            system_tokens=call.system_tokens,
            weight=call.weight,
            background=call.background,
            user_weight=call.user_weight,
            interaction=call.interaction,
            seed_position=attempt.generated,
            in_interaction=attempt.in_interaction,
            ends_interaction=call.last,
            charged=len(tokens) if attempt.charged else 0,
            deadline=call.deadline,
            queued_at=self._clock.now,
        )

    def abort(self, attempt: SimulatedAttempt) -> None:
        """Abort the attempt, as the gateway requests; do nothing when it has ended."""
        if self._puts_off(partial(self.abort, attempt)):
            return
        for request in self.delivery.owned_by(attempt):
            self.machine.handle(AbortRequest(request), self._clock.now)
        self._deliver()

    def crash(self) -> None:
        """Drop the queue, the batch and the cache, and start a new life."""
        self.life += 1
        self.alive = False
        self.batcher = self.spec.make_batcher()
        self.machine = WorkerMachine(self.batcher.queue)
        self.delivery = Delivery()
        self._busy = self._ticks = False

    def restart(self) -> None:
        """Mark the worker as alive again; after its crash it is empty."""
        self.alive = True

    def _step(self) -> None:
        plan = self.batcher.plan(self._clock.now)
        self._busy = plan is not None
        if plan is None:
            return
        self.machine.handle(RequestsAdmitted(plan.admitted), self._clock.now)
        for request in plan.admitted:
            attempt = attempt_of(request)
            if attempt.call.admitted_at is None:
                attempt.call.admitted_at = self._clock.now
        lengths = plan.lengths or [1] * len(plan.parts)
        seconds = self.step_time(plan.batch, lengths) * self.slowdown
        self._clock.after(seconds, partial(self._commit, self.life, plan, seconds))

    def _commit(self, life: int, plan: Plan, seconds: float) -> None:
        if life != self.life:
            return
        if self._puts_off(partial(self._commit, life, plan, seconds)):
            return
        self._run_log.steps += max(plan.lengths, default=1)
        self.batcher.timed(plan, seconds)
        self.machine.handle(RequestsAdvanced(self.batcher.commit(plan, self._result(plan))), self._clock.now)
        for account in self.batcher.queue.ledger.take_changed():
            self._run_log.served(self.name, life, account, self._clock.now)
        self.checked(self)
        self._deliver(*self.batcher.queue.cache.changes.take_events())
        self._step()

    def _deliver(self, cached: tuple[Link, ...] = (), evicted: tuple[int, ...] = ()) -> None:
        """Report all events since the last report, but for the tokens that are gathered for a later one."""
        events = self.delivery.deliver(self.machine.take_events(), self._clock.now)
        self.report(self, WorkerUpdate(events=events, cached=cached, evicted=evicted))
        if self.delivery.due is not None and not self._ticks:
            self._ticks = True
            self._clock.at(self.delivery.due, partial(self._tick, self.life))

    def _tick(self, life: int) -> None:
        if life != self.life:
            return
        if self._puts_off(partial(self._tick, life)):
            return
        self._ticks = False
        self._deliver()

    def _result(self, plan: Plan) -> StepResult:
        if plan.lengths:
            return StepResult((), runs=tuple(map(self._sample, plan.requests, plan.lengths)))
        return StepResult(tuple([self._sample(request, 1)[0] for request, piece in plan.parts if piece.samples]))

    def _sample(self, request: Request, tokens: int) -> Sequence[int]:
        """Return the next tokens, or arbitrary ones for a request that was aborted while the step ran."""
        if request.ended_at is not None:
            return range(tokens)
        made = request.seed_position + len(request.tokens) - request.prompt_tokens
        return attempt_of(request).answer[made : made + tokens]


def attempt_of(request: Request) -> SimulatedAttempt:
    assert isinstance(request.owner, SimulatedAttempt)
    return request.owner

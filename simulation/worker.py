"""A worker under virtual time: its job table and batcher, with step times from the profile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fairlead.outcomes import Outcome
from local_worker.core.batch import StepResult
from local_worker.core.job import Job, JobEnded, JobEvents
from local_worker.core.job_table import JobTable
from local_worker.core.plan import Plan
from local_worker.core.request import Request
from local_worker.core.token_gatherer import TokenGatherer
from serving.blocks import Link
from serving.sampling_params import SamplingParams
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
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
    charged: bool  # an earlier attempt has started
    tokens_per_message: int
    answer: range = range(0)  # worker: all output tokens of the call


class NoText:
    """The decoder of simulated outputs, which have no text; see Text."""

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See Text."""
        return "", ""

    def rest(self) -> str:
        """See Text."""
        return ""

    def token_bytes(self, token: int) -> bytes:
        """See Text."""
        return b""


def _sampling(call: SimulatedCall, generated: int) -> SamplingParams:
    """Return the limits of an attempt at `call` after `generated` tokens: its last token stops it if it reserves
    more."""
    most = call.output_tokens + call.unused_tokens
    stops = tuple(call.answer[-1:]) if call.unused_tokens else ()
    return SamplingParams(max_tokens=most, ignore_eos=True, stop_token_ids=stops).after(generated)


@dataclass(frozen=True, slots=True)
class WorkerEvents:
    """A worker's report: events for the gateway and the scheduler, and changes of its cache for the scheduler."""

    events: JobEvents[SimulatedAttempt]
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()


class SimulatedWorker:
    """A worker that passes its events to `report`. A crash ends a life; steps planned in that life are discarded."""

    def __init__(self, name: str, spec: WorkerSpec, clock: VirtualClock, run_log: RunLog) -> None:
        self.name = name
        self.spec = spec
        self.life = 0
        self.alive = True
        self.slowdown = 1.0
        self.stalled_until = 0.0
        self.batcher = spec.make_batcher()
        self.jobs: JobTable[SimulatedAttempt] = JobTable(self.batcher.queue)
        self.gatherer: TokenGatherer[Job[SimulatedAttempt]] = TokenGatherer()
        self.report: Callable[[SimulatedWorker, WorkerEvents], None] = lambda worker, events: None
        self.entered: Callable[[SimulatedAttempt, Request], None] = lambda attempt, request: None
        self.checked: Callable[[SimulatedWorker], None] = lambda worker: None
        self._clock = clock
        self._run_log = run_log
        self._seconds = StepTime(spec.profile.coefficients)
        self._arrivals = 0
        self._busy = False
        self._ticks = False  # whether a tick of the gatherer is planned

    def submit(self, attempt: SimulatedAttempt) -> None:
        """Queue the attempt. A refusal is reported like any other end; so is a dead worker, whose connection is
        refused."""
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self.submit, attempt))
            return
        self._arrivals += 1
        request = self._request(attempt)
        job = Job(attempt, request, attempt.number, NoText(), self._clock.now)
        if not self.alive:
            self.report(self, WorkerEvents(JobEvents(ended=[JobEnded(job, Outcome.UNAVAILABLE)])))
            return
        attempt.answer = output_run(attempt.call.number, 0, attempt.call.output_tokens)
        self.gatherer.begin(job, attempt.tokens_per_message)
        self.jobs.submit(job, self._clock.now)
        self._deliver()
        if request.deadline is not None:
            self._clock.at(request.deadline, self._expire)
        if not self._busy:
            self._step()

    def _expire(self) -> None:
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, self._expire)
            return
        self.jobs.expire(self._clock.now)
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
            client=call.client,
            tokens=tokens,
            prompt_tokens=len(tokens),
            digests=digests,
            chain_seed=CHAIN_SEED,
            sampling=_sampling(call, attempt.generated),
            arrival=self._arrivals,
            system_tokens=call.system_tokens,
            weight=call.weight,
            user_weight=call.user_weight,
            interaction=call.interaction,
            seed_position=attempt.generated,
            in_interaction=attempt.in_interaction,
            paid=attempt.charged,
            deadline=call.deadline,
        )

    def abort(self, attempt: SimulatedAttempt) -> None:
        """Abort the attempt, as the gateway requests; do nothing when it has ended."""
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self.abort, attempt))
            return
        self.jobs.abort(attempt, str(attempt.call.number), attempt.number, self._clock.now)
        self._deliver()

    def crash(self) -> None:
        """Drop the queue, the batch and the cache, and start a new life."""
        self.life += 1
        self.alive = False
        self.batcher = self.spec.make_batcher()
        self.jobs = JobTable(self.batcher.queue)
        self.gatherer = TokenGatherer()
        self._busy = self._ticks = False

    def restart(self) -> None:
        """Mark the worker as alive again; after its crash it is empty."""
        self.alive = True

    def _step(self) -> None:
        plan = self.batcher.plan(self._clock.now)
        self._busy = plan is not None
        if plan is None:
            return
        self.jobs.admitted(plan.admitted, self._clock.now)
        for request in plan.admitted:
            attempt = self.jobs.owner(request)
            assert attempt is not None, f"request {request.id} entered the batch without an owner"
            self.entered(attempt, request)
            if attempt.call.admitted_at is None:
                attempt.call.admitted_at = self._clock.now
        lengths = plan.lengths or [1] * len(plan.parts)
        seconds = self._seconds(plan.batch, lengths) * self.slowdown
        self._clock.after(seconds, partial(self._commit, self.life, plan))

    def _commit(self, life: int, plan: Plan) -> None:
        if life != self.life:
            return
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self._commit, life, plan))
            return
        self._run_log.steps += max(plan.lengths, default=1)
        advances = self.batcher.commit(plan, self._result(plan))
        self.jobs.advance(advances, self._clock.now)
        for account in self.batcher.queue.ledger.take_changed():
            self._run_log.served(self.name, life, account, self._clock.now)
        self.checked(self)
        self._deliver(*self.batcher.queue.cache.take_events())
        self._step()

    def _deliver(self, cached: tuple[Link, ...] = (), evicted: tuple[int, ...] = ()) -> None:
        """Report all events since the last report, but for the tokens that are gathered for a later one."""
        events, now = self.jobs.take_events(), self._clock.now
        for job, output in events.tokens:
            self.gatherer.add(job, output, now)
        for end in events.ended:
            self.gatherer.end(end.job)
        events.tokens = self.gatherer.take(now)
        self.report(self, WorkerEvents(events, cached, evicted))
        if self.gatherer.due is not None and not self._ticks:
            self._ticks = True
            self._clock.at(self.gatherer.due, partial(self._tick, self.life))

    def _tick(self, life: int) -> None:
        if life != self.life:
            return
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self._tick, life))
            return
        self._ticks = False
        self._deliver()

    def _result(self, plan: Plan) -> StepResult:
        if plan.lengths:
            return StepResult((), runs=tuple(map(self._sample, plan.requests, plan.lengths)))
        return StepResult(tuple([self._sample(request, 1)[0] for request, piece in plan.parts if piece.samples]))

    def _sample(self, request: Request, tokens: int) -> Sequence[int]:
        """Return the next tokens, or arbitrary ones for a request that was aborted while the step ran."""
        attempt = self.jobs.owner(request)
        made = request.seed_position + len(request.tokens) - request.prompt_tokens
        return range(tokens) if attempt is None else attempt.answer[made : made + tokens]

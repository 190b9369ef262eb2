"""A worker under virtual time: the batching core, and steps that take as long as the profile says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fairlead.errors import FairleadError
from fairlead.outcomes import Outcome
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Plan
from local_worker.core.prefix_cache import Link
from local_worker.core.request import Request
from serving.sampling import Sampling
from simulation.batchers import make_batcher
from simulation.call import Call
from simulation.clock import Clock
from simulation.journal import Journal
from simulation.prompts import CHAIN_SEED, digests_of, output_run
from simulation.spec import WorkerSpec
from simulation.step_time import StepTime


@dataclass(slots=True, eq=False)
class Session:
    """One attempt of a call at a worker. What an older attempt still says is ignored."""

    call: Call
    attempt: int
    worker: "Worker"
    in_interaction: bool
    generated: int  # output tokens of earlier attempts
    charged: bool  # an earlier attempt has started
    answer: range = range(0)  # worker: the model's, to the call in full
    admitted: bool = False  # worker: it has entered the running batch


@dataclass(frozen=True, slots=True)
class End:
    """An attempt's end at its worker, with the output tokens that it made there."""

    session: Session
    outcome: Outcome
    produced: int = 0


@dataclass(slots=True)
class News:
    """What one turn of a worker's loop has to tell: to the gateway and, ends and blocks, to the scheduler."""

    accepted: list[Session] = field(default_factory=list)
    started: list[tuple[Session, int]] = field(default_factory=list)  # cached prompt tokens
    tokens: list[tuple[Session, Sequence[int]]] = field(default_factory=list)
    ended: list[End] = field(default_factory=list)
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()


class Worker:
    """`tell` receives the news. A life ends with a crash; what was planned in an earlier one never happens."""

    def __init__(self, name: str, spec: WorkerSpec, clock: Clock, journal: Journal) -> None:
        self.name = name
        self.spec = spec
        self.life = 0
        self.alive = True
        self.slowdown = 1.0
        self.stalled_until = 0.0
        self.batcher = make_batcher(spec)
        self.tell: Callable[[Worker, News], None] = lambda worker, news: None
        self.entered: Callable[[Session, Request], None] = lambda session, request: None
        self.checked: Callable[[Worker], None] = lambda worker: None
        self._clock = clock
        self._journal = journal
        self._seconds = StepTime(spec.profile.coefficients)
        self._sessions: dict[Request, Session] = {}
        self._arrivals = 0
        self._busy = False

    @property
    def sessions(self) -> list[Session]:
        """Waiting and running."""
        return list(self._sessions.values())

    def submit(self, session: Session) -> None:
        """Queue the attempt; a refusal is told like any end, and a dead worker's connection refuses too."""
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self.submit, session))
            return
        if not self.alive:
            self.tell(self, News(ended=[End(session, Outcome.UNAVAILABLE)]))
            return
        self._arrivals += 1
        request = self._request(session)
        try:
            displaced = self.batcher.submit(request, self._clock.now)
        except FairleadError as error:
            self.tell(self, News(ended=[End(session, error.outcome)]))
            return
        self._sessions[request] = session
        session.answer = output_run(session.call.number, 0, session.call.output_tokens)
        ended = [] if displaced is None else [End(self._sessions.pop(displaced), Outcome.REJECTED_QUEUE_FULL)]
        self.tell(self, News(accepted=[session], ended=ended))
        if request.deadline is not None:
            self._clock.at(request.deadline, self._expire)
        if not self._busy:
            self._step()

    def _expire(self) -> None:
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, self._expire)
            return
        late = self.batcher.expired(self._clock.now)
        ended = [End(self._sessions.pop(r), Outcome.DEADLINE_EXCEEDED, r.output_tokens) for r in late]
        self.tell(self, News(ended=ended))

    def _request(self, session: Session) -> Request:
        call = session.call
        if not call.digests:
            call.digests = digests_of(call.prompt, self.spec.block_tokens)
        tokens, digests = list(call.prompt), list(call.digests)
        if session.generated:
            tokens += call.answer[: session.generated]
            digests = digests_of(tokens, self.spec.block_tokens)
        return Request(
            id=str(call.number),
            client=call.client,
            tokens=tokens,
            prompt_tokens=len(tokens),
            digests=digests,
            chain_seed=CHAIN_SEED,
            sampling=Sampling(max_tokens=call.output_tokens - session.generated, ignore_eos=True),
            arrival=self._arrivals,
            system_tokens=call.system_tokens,
            weight=call.weight,
            seed_position=session.generated,
            in_interaction=session.in_interaction,
            paid=session.charged,
            deadline=call.deadline,
        )

    def abort(self, session: Session) -> None:
        """The gateway gave the attempt up; does nothing when it has ended."""
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self.abort, session))
            return
        for request in [request for request, other in self._sessions.items() if other is session]:
            del self._sessions[request]
            self.batcher.abort(request)
            self.tell(self, News(ended=[End(session, Outcome.CANCELLED, request.output_tokens)]))

    def crash(self) -> None:
        """Everything here is gone, the cache included."""
        self.life += 1
        self.alive = False
        self._sessions.clear()
        self.batcher = make_batcher(self.spec)
        self._busy = False

    def restart(self) -> None:
        """Empty, after a crash."""
        self.alive = True

    def _step(self) -> None:
        plan = self.batcher.plan(self._clock.now)
        self._busy = plan is not None
        if plan is None:
            return
        for request in plan.admitted:
            session = self._sessions[request]
            self.entered(session, request)
            session.admitted, call = True, session.call
            call.admitted_at = self._clock.now if call.admitted_at is None else call.admitted_at
        lengths = self.batcher.lengths(plan)
        seconds = self._seconds(plan.batch, lengths) * self.slowdown
        self._clock.after(seconds, partial(self._commit, self.life, plan, lengths))

    def _commit(self, life: int, plan: Plan, lengths: list[int]) -> None:
        if life != self.life:
            return
        if self._clock.now < self.stalled_until:
            self._clock.at(self.stalled_until, partial(self._commit, life, plan, lengths))
            return
        self._journal.steps += max(lengths)
        # Aborted while the step ran: no session any more, and the batcher passes them over.
        news = News(started=[(self._sessions[r], r.cached) for r in plan.admitted if r in self._sessions])
        slices = plan.batch.slices
        runs = {piece.request: self._sample(piece.request, n) for piece, n in zip(slices, lengths, strict=True)}
        if max(lengths) > 1:
            advances = self.batcher.commit_run(plan, list(runs.values()))
        else:
            tokens = [runs[piece.request][0] for piece in slices if piece.samples]
            advances = self.batcher.commit(plan, StepResult(tuple(tokens)))
        for advance in advances:
            session = self._sessions[advance.request]
            news.tokens.append((session, runs[advance.request]))
            if advance.finish is not None:
                del self._sessions[advance.request]
                news.ended.append(End(session, Outcome.COMPLETED, advance.request.output_tokens))
        news.cached, news.evicted = self.batcher.cache.take_events()
        for account, _ in self.batcher.take_changed_accounts():
            self._journal.served(self.name, life, account, self._clock.now)
        self.checked(self)
        self.tell(self, news)
        self._step()

    def _sample(self, request: Request, tokens: int) -> Sequence[int]:
        """Those that come next; anything for a request that was aborted while the step ran."""
        session = self._sessions.get(request)
        made = request.seed_position + len(request.tokens) - request.prompt_tokens
        return range(tokens) if session is None else session.answer[made : made + tokens]

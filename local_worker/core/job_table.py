"""The jobs of one worker: from submission through the steps of the batcher to exactly one end each.

The table drives the batcher and says what became of whom. Whoever drives the table brings commands, plans, the engine's
results and the time; whatever has happened it takes away as events.
"""

from collections.abc import Collection, Iterable
from typing import Generic

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.job import Job, JobEnded, JobEvents, JobStarted, JobTokens, Owner
from local_worker.core.plan import Advance, Plan
from local_worker.core.request import Request


class JobTable(Generic[Owner]):
    """Owns every job from `submit` to its Ended event. `now` is in seconds and never goes back."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._jobs: dict[Request, Job[Owner]] = {}
        self._owned: dict[Owner, dict[tuple[str, int], Job[Owner]]] = {}  # by request id and attempt
        self._events: JobEvents[Owner] = JobEvents()

    @property
    def jobs(self) -> Collection[Job[Owner]]:
        """Jobs that have not ended, the earliest submitted first."""
        return self._jobs.values()

    def owner(self, request: Request) -> Owner | None:
        """Return who owns the job of `request`; None once it has ended."""
        job = self._jobs.get(request)
        return job.owner if job is not None else None

    def take_events(self) -> JobEvents[Owner]:
        """Return what has happened since the last call."""
        events, self._events = self._events, JobEvents()
        return events

    def submit(self, job: Job[Owner], now: float) -> None:
        """Queue `job`. A request id that its owner has under way with the same attempt is a repeated message: ignored.

        What the batcher refuses ends at once, and so does the job that gives way when the queue is full.
        """
        owned = self._owned.setdefault(job.owner, {})
        key = (job.request.id, job.attempt)
        if key in owned:
            return
        owned[key] = self._jobs[job.request] = job
        self._events.accepted.append(job)
        try:
            displaced = self._batcher.submit(job.request, now)
        except FairleadError as error:
            self._end(job, now, error.outcome, message=error.message)
            return
        if displaced is not None:
            message = f"the queue is full, and client {displaced.client!r} has most of it"
            self._end(self._jobs[displaced], now, Outcome.REJECTED_QUEUE_FULL, message=message)

    def abort(self, owner: Owner, request_id: str, attempt: int, now: float) -> None:
        """End a job of `owner` as CANCELLED; does nothing for one that is unknown or has ended."""
        job = self._owned.get(owner, {}).get((request_id, attempt))
        if job is not None:
            self._cancel(job, now)

    def abort_all(self, owner: Owner, now: float) -> None:
        """End every job of `owner` as CANCELLED: its stream broke."""
        for job in list(self._owned.get(owner, {}).values()):
            self._cancel(job, now)

    def _cancel(self, job: Job[Owner], now: float) -> None:
        self._batcher.abort(job.request)
        self._end(job, now, Outcome.CANCELLED, message="cancelled by the caller")

    def next_deadline(self) -> float | None:
        """Return when `expire` has something to do at the earliest."""
        return self._batcher.next_deadline()

    def expire(self, now: float) -> int:
        """End every job whose deadline has passed as DEADLINE_EXCEEDED; return how many there were."""
        late = self._batcher.expired(now)
        for request in late:
            self._end(self._jobs[request], now, Outcome.DEADLINE_EXCEEDED, message="the call's deadline passed")
        return len(late)

    def plan(self, now: float) -> Plan | None:
        """See Batcher.plan. Who enters the running batch for the first time has started."""
        plan = self._batcher.plan(now)
        for request in plan.admitted if plan is not None else ():
            job = self._jobs[request]
            if job.started_at is None:  # otherwise it comes back from a preemption
                job.started_at = now
                self._events.started.append(JobStarted(job, request.service))
        return plan

    def commit(self, plan: Plan, result: StepResult, now: float) -> None:
        """See Batcher.commit. Every job that got a token advances; a last token and a stop string end it."""
        self.advance(self._batcher.commit(plan, result), now)

    def advance(self, advances: Iterable[Advance], now: float) -> None:
        """Take in what a commit of the batcher returned."""
        for advance in advances:
            self._advance(self._jobs[advance.request], advance, now)

    def _advance(self, job: Job[Owner], advance: Advance, now: float) -> None:
        request, tokens, finish, logprobs = advance
        if job.first_token_at is None:
            job.first_token_at = now
        # The token that ends the output (end of sequence, a stop token) is reported, but is no text.
        text, stopped = job.text.push(tokens[:-1] if finish is FinishReason.STOP else tokens)
        self._events.tokens.append(JobTokens(job, tokens, text, logprobs, request.service))
        if stopped:
            if finish is None:
                self._batcher.abort(request)
            self._end(job, now, Outcome.COMPLETED, FinishReason.STOP)
        elif finish is not None:
            self._end(job, now, Outcome.COMPLETED, finish, text=job.text.rest())

    def fail(self, plan: Plan, now: float) -> None:
        """See Batcher.fail. The jobs of a step that failed end as INTERNAL."""
        for request in self._batcher.fail(plan):
            self._end(self._jobs[request], now, Outcome.INTERNAL, message="the forward pass failed")

    def _end(
        self,
        job: Job[Owner],
        now: float,
        outcome: Outcome,
        reason: FinishReason | None = None,
        *,
        message: str = "",
        text: str = "",
    ) -> None:
        del self._jobs[job.request]
        owned = self._owned[job.owner]
        del owned[job.request.id, job.attempt]
        if not owned:
            del self._owned[job.owner]
        job.ended_at = now
        self._events.ended.append(JobEnded(job, outcome, reason, message, text))

    def check_invariants(self) -> None:
        """Raise AssertionError unless both ways to find a job agree, and the batcher has every job and nothing else."""
        owned = [job for jobs in self._owned.values() for job in jobs.values()]
        assert {*owned} == {*self._jobs.values()}, f"{len(owned)} jobs by owner, {len(self._jobs)} by request"
        assert all(self._owned.values()), "an owner without jobs is remembered"
        for request, job in self._jobs.items():
            assert job.request is request, f"{job} is kept for {request}"
            assert job.ended_at is None, f"{request.id} has ended at {job.ended_at} and is kept"
        held = self._batcher.waiting + self._batcher.running
        assert held == len(self._jobs), f"the batcher has {held} requests, the table {len(self._jobs)} jobs"
        self._batcher.check_invariants()

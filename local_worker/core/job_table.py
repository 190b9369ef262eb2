"""The jobs of one worker: the way of each job from its submission, through the running batch, to exactly one end.

The caller passes in commands, what the batcher has admitted and advanced, and the time, and takes the resulting events.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Generic

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.block_cache import BlockCache
from local_worker.core.job import Job, JobEnded, JobEvents, JobStarted, Owner
from local_worker.core.output import Output, SpelledLogprobs, spelled, spelled_prompt
from local_worker.core.plan import Advance
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request


class JobTable(Generic[Owner]):
    """The owner of every job from `submit` until its JobEnded event. `now` is in seconds and never decreases."""

    def __init__(self, queue: RequestQueue[BlockCache]) -> None:
        self._queue = queue
        self._jobs: dict[Request, Job[Owner]] = {}
        self._owned: dict[Owner, dict[tuple[str, int], Job[Owner]]] = {}  # by request id and attempt
        self._events: JobEvents[Owner] = JobEvents()

    @property
    def jobs(self) -> Collection[Job[Owner]]:
        """The jobs that have not ended, in order of submission."""
        return self._jobs.values()

    def owner(self, request: Request) -> Owner | None:
        """Return the owner of the job of `request`; None once the job has ended."""
        job = self._jobs.get(request)
        return job.owner if job is not None else None

    def take_events(self) -> JobEvents[Owner]:
        """Return the events since the last call, and forget them."""
        events, self._events = self._events, JobEvents()
        return events

    def submit(self, job: Job[Owner], now: float) -> None:
        """Queue `job`; ignore it as a repeated message if its owner has an unfinished job of equal request id and
        attempt.

        A job that the queue refuses ends at once. So does the job that is dropped for it when the queue is full.
        """
        owned = self._owned.setdefault(job.owner, {})
        key = (job.request.id, job.attempt)
        if key in owned:
            return
        owned[key] = self._jobs[job.request] = job
        self._events.accepted.append(job)
        try:
            displaced = self._queue.submit(job.request, now)
        except FairleadError as error:
            self._end(job, now, error.outcome, message=error.message)
            return
        if displaced is not None:
            message = f"the queue is full, and client {displaced.client!r} has the most requests in it"
            self._end(self._jobs[displaced], now, Outcome.REJECTED_QUEUE_FULL, message=message)

    def abort(self, owner: Owner, request_id: str, attempt: int, now: float) -> None:
        """End a job of `owner` as CANCELLED; do nothing if it is unknown or has ended."""
        job = self._owned.get(owner, {}).get((request_id, attempt))
        if job is not None:
            self._cancel(job, now)

    def abort_all(self, owner: Owner, now: float) -> None:
        """End every job of `owner`, whose stream broke, as CANCELLED."""
        for job in list(self._owned.get(owner, {}).values()):
            self._cancel(job, now)

    def _cancel(self, job: Job[Owner], now: float) -> None:
        self._queue.abort(job.request)
        self._end(job, now, Outcome.CANCELLED, message="cancelled by the caller")

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of a job in seconds; None when no job has one."""
        return self._queue.next_deadline()

    def expire(self, now: float) -> int:
        """End every job whose deadline has passed as DEADLINE_EXCEEDED; return the number of these jobs."""
        late = self._queue.expired(now)
        for request in late:
            self._end(self._jobs[request], now, Outcome.DEADLINE_EXCEEDED, message="the call's deadline passed")
        return len(late)

    def admitted(self, requests: Iterable[Request], now: float) -> None:
        """Record the start of each job whose request was admitted for the first time."""
        for request in requests:
            job = self._jobs[request]
            if job.started_at is None:  # otherwise the job was preempted and is admitted again
                job.started_at = now
                self._events.started.append(JobStarted(job, request.service))

    def advance(self, advances: Iterable[Advance], now: float) -> None:
        """Record the `advances` of jobs; the last token of an output and a stop string end a job."""
        for advance in advances:
            self._advance(self._jobs[advance.request], advance, now)

    def _advance(self, job: Job[Owner], advance: Advance, now: float) -> None:
        request, tokens, finish, logprobs, scores, failure = advance
        if failure:
            self._end(job, now, Outcome.REJECTED_INVALID, message=failure)
            return
        if job.first_token_at is None:
            job.first_token_at = now
        # A token that ends the output (end of sequence, a stop token) is reported but adds no text.
        text, stop = job.text.push(tokens[:-1] if finish is FinishReason.STOP else tokens)
        reported: Sequence[SpelledLogprobs] = ()
        if logprobs:
            reported = [spelled(token, found, job.text) for token, found in zip(tokens, logprobs, strict=False)]
        prompt = () if scores is None else spelled_prompt(request.tokens[: request.prompt_tokens], scores, job.text)
        output = Output(request.id, job.attempt, tokens, text, reported, request.service, prompt)
        self._events.tokens.append((job, output))
        if stop:
            if finish is None:
                self._queue.abort(request)
            self._end(job, now, Outcome.COMPLETED, FinishReason.STOP, stop_string=stop)
        elif finish is not None:
            self._end(job, now, Outcome.COMPLETED, finish, text=job.text.rest())

    def end(self, requests: Iterable[Request], outcome: Outcome, message: str, now: float) -> None:
        """End the jobs of `requests`, which failed or cannot go on here; the queue gives up those that it has."""
        for request in requests:
            self._queue.abort(request)
            self._end(self._jobs[request], now, outcome, message=message)

    def _end(
        self,
        job: Job[Owner],
        now: float,
        outcome: Outcome,
        reason: FinishReason | None = None,
        *,
        message: str = "",
        text: str = "",
        stop_string: str = "",
    ) -> None:
        del self._jobs[job.request]
        owned = self._owned[job.owner]
        del owned[job.request.id, job.attempt]
        if not owned:
            del self._owned[job.owner]
        job.ended_at = now
        self._events.ended.append(JobEnded(job, outcome, reason, message, text, stop_string))

    def check_invariants(self) -> None:
        """Raise AssertionError unless both indexes hold the same jobs, whose requests the queue holds."""
        owned = [job for jobs in self._owned.values() for job in jobs.values()]
        assert {*owned} == {*self._jobs.values()}, f"{len(owned)} jobs by owner, {len(self._jobs)} by request"
        assert all(self._owned.values()), "an owner without jobs is kept"
        for request, job in self._jobs.items():
            assert job.request is request, f"{job} is kept for {request}"
            assert job.ended_at is None, f"{request.id} ended at {job.ended_at} and is kept"
        held = len(self._queue.waiting) + len(self._queue.running)
        assert held == len(self._jobs), f"the queue has {held} requests, the table {len(self._jobs)} jobs"
        self._queue.check_invariants()

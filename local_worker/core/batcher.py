"""Continuous batching: the queue, the running batch, and the plan of each step (plan, execute, commit).

There are no prefill and decode phases: `computed` catches up with `len(tokens)`, in chunks if the token budget demands
it. Under reserve admission a request gets pages for its whole budget, so no running request is ever preempted. Under
optimistic admission a request gets pages as its tokens are generated. When pages run out, a request is preempted: it
keeps its tokens and returns to the queue, and the part of it that the prefix cache has lost is computed again.

A step may be planned while the previous one is in flight. A token then counts before its value is known, and `computed`
includes all steps planned so far. Charges, ends and cached blocks follow at the commit. A step that was planned before
the end of a request was known may compute tokens beyond that end: they are dropped. The pages of the ended request are
free at once, since steps compute in the order of their plans.
"""

from collections.abc import Collection, Sequence
from itertools import count, repeat
from operator import attrgetter

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, Slice, StepResult
from local_worker.core.class_turns import ClassTurns
from local_worker.core.events import RequestTokens
from local_worker.core.limits import AdmissionMode
from local_worker.core.plan import InFlight, LateMasks, Plan, StepLoad, StepPace, behind, entry_of, shares, slice_of
from local_worker.core.policies.protocol import ClassedPolicy
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from local_worker.core.turns import Turns


class Batcher:
    """The running batch of `queue`, of which it plans one step after the other.

    An engine that schedules only once every few decoding steps, as SGLang (DLPM section 5.1) and S-LoRA, is planned for
    with a `decode_run` above 1: the number of decoding steps that are one step to the batcher (see Plan). A step should
    last no longer than `step_seconds`; see StepPace.
    """

    def __init__(
        self,
        queue: RequestQueue[PrefixCache],
        eos_token_ids: Collection[int],
        decode_run: int = 1,
        step_seconds: float | None = None,
    ) -> None:
        self.queue = queue
        self._cache = queue.cache
        self._limits = queue.limits
        self._running = queue.running
        self._eos = frozenset(eos_token_ids)
        self._decode_run = decode_run
        self._in_flight = InFlight()
        self._late = LateMasks()
        self._pace = StepPace(queue.limits.token_budget, step_seconds)
        self.turns = self._turns_of(queue)
        self._left: list[int] = []  # requests that have left the running batch since the last batch, by arrival

    def _turns_of(self, queue: RequestQueue[PrefixCache]) -> Turns | ClassTurns | None:
        """Return the turns of a policy of slices; None for one that decides about whole requests."""
        match queue.policy:
            case SlicedDlpm() as policy:
                return Turns(queue, policy, self._in_flight, self._pace)
            case ClassedPolicy(interactive=SlicedDlpm() as upper, background=SlicedDlpm() as lower):
                return ClassTurns(queue, upper, lower, self._in_flight, self._pace)
        return None

    def plan(self, now: float) -> Plan | None:
        """Admit requests as the policy chooses, and divide the step among the running ones. Return None if there is
        nothing to compute, or nothing before the next commit. At most one plan may be uncommitted at the call."""
        self._cache.advance(now)
        self.queue.note_cached_blocks()
        can_enter = self._extend_pages(now)
        if not can_enter:
            if self._in_flight:
                return None  # a request that is preempted should keep its token in flight: commit first
            # No request enters in a step with a preemption: it would soon be preempted itself.
            self._preempt_for_pages(now)
        self._note_left()
        admitted, found = self._divide(now, can_enter)
        self._note_left()
        self.queue.observe(now)
        if not found:
            return None
        lengths = self._lengths(found, self._decode_run) if self._decode_run > 1 else ()
        requests, tokens = zip(*found, strict=True)
        slices = tuple(map(slice_of, requests, tokens, repeat(self._in_flight.sources)))
        entered = [*admitted, *self._late.take_back(requests)]
        batch = Batch(slices, tuple(map(entry_of, entered)), tuple(self._left))
        self._left.clear()
        plan = Plan(batch, tuple(zip(requests, slices, strict=True)), tuple(admitted), lengths)
        self._in_flight.launched(plan)
        return plan

    def _note_left(self) -> None:
        for request in self.queue.take_left():
            self._late.left(request)
            self._left.append(request.arrival)

    def _extend_pages(self, now: float) -> bool:
        """Give the running requests pages for their due tokens, those of background requests if need be; return False
        if pages run out. Reserved pages always suffice."""
        if self._limits.admission is AdmissionMode.RESERVE:
            return True
        for request in sorted(self._running, key=attrgetter("background")):
            while request in self._running and not self._extend(request, request.due):
                lower = [other for other in self._running if other.background]
                if self._in_flight or not lower:
                    return False
                victims = lower[1:] if request.background else lower
                self.queue.preempt(self.queue.policy.victim(victims or lower), now)
        return True

    def _extend(self, request: Request, tokens: int) -> bool:
        """Give a running `request` pages for `tokens` tokens; return False, and change nothing, if they do not fit."""
        before = len(request.pages)
        is_extended = self._cache.extend(request, tokens)
        if len(request.pages) > before:
            self.queue.policy_of(request).accounts.grew(request, len(request.pages) - before)
        return is_extended

    def _preempt_for_pages(self, now: float) -> None:
        """Give each running request its missing pages, oldest first; preempt the requests that the policy names until
        they fit."""
        for request in list(self._running):
            while request in self._running and not self._extend(request, request.due):
                self.queue.preempt(self.queue.policy.victim(list(self._running)[1:]), now)

    def _divide(self, now: float, can_enter: bool) -> tuple[list[Request], list[tuple[Request, int]]]:
        """Return the requests that enter, and those that take part in the step, each with its number of tokens.

        Those with late masks take part only if there is no other: the engine waits for them then.
        """
        if self.turns is None:
            admitted = self._select() if can_enter else []
            found = self._shares()
        else:
            admitted, parts = self.turns.divide(now, self._in_time(), can_enter)
            found = list(parts.items())
        late = [request for request in self._late.requests if request in self._running]
        return admitted, found or list(shares(late, self._limits.token_budget))

    def _shares(self) -> list[tuple[Request, int]]:
        """Return the parts of a step that computes prompts in the order in which they were admitted."""
        return list(shares(self._in_time(), self._limits.token_budget))

    def _in_time(self) -> Collection[Request]:
        """Return the running requests whose masks are ready."""
        late = self._late.requests
        return [request for request in self._running if request not in late] if late else self._running

    def _select(self) -> list[Request]:
        """Admit whole requests as the policy chooses."""
        if not self.queue.waiting or len(self._running) >= self._limits.max_running:
            return []
        return self.queue.select(
            tokens=self._limits.token_budget - sum(map(behind, self._running)),
            places=self._limits.max_running - len(self._running),
        )

    def _lengths(self, shares: Sequence[tuple[Request, int]], steps: int) -> tuple[int, ...]:
        """Give the requests of `shares` pages for a run of at most `steps` decoding steps; return its lengths.

        There is no run, and no length, while a prompt is being computed, or when pages run out.
        """
        if any(max(tokens, request.due - request.computed) > 1 for request, tokens in shares):
            return ()
        lengths = [min(steps, request.budget - len(request.tokens)) for request, _ in shares]
        if max(lengths) == 1 or not all(
            self._extend(request, len(request.tokens) + length - 1)
            for (request, _), length in zip(shares, lengths, strict=True)
        ):
            return ()
        return tuple(lengths)

    def timed(self, plan: Plan, seconds: float) -> None:
        """Learn from the time that the step of `plan` took: prompts get as many tokens of a step as it has time for."""
        if self.turns is not None and not plan.lengths:
            self._pace.observe(StepLoad.of(plan.batch.slices), seconds)

    def expected_seconds(self, plan: Plan) -> float:
        """Return the seconds that the step of `plan` will take, as far as that is learned; 0 if it is not."""
        return self._pace.expected(StepLoad.of(plan.batch.slices)) if self.turns is not None else 0.0

    def commit(self, plan: Plan, result: StepResult) -> list[RequestTokens]:
        """Append the samples of the earliest uncommitted plan; return the progress of each request that got one.
        Requests that have left the batch since are skipped: they are neither charged nor are their blocks published."""
        self._in_flight.landed()
        if result.runs:
            return self._commit_run(plan, result.runs)
        sampled = iter(zip(count(), result.tokens, result.logprobs or repeat(None), strict=False))
        scores = iter(result.scores)
        failures, deferred = dict(result.failures), frozenset(result.deferred)
        advances = []
        for request, piece in plan.parts:
            made = next(sampled) if piece.samples else None
            scored = next(scores) if piece.scored else ()
            if request not in self._running:
                continue
            request.scores += scored
            if made is not None and made[0] in deferred:
                self._defer(request, piece)
                continue
            self._cache.publish(request, piece.stop)
            if made is not None:
                place, token, logprobs = made
                if place in failures:
                    self.queue.finish(request)
                    advances.append(RequestTokens(request, (), failure=failures[place]))
                    continue
                of_prompt = request.take_scores() if request.scores_prompt else None
                request.tokens.append(token)
                finish = self._advance(request, (token,))
                found = () if logprobs is None else (logprobs,)
                advances.append(RequestTokens(request, (token,), finish, found, of_prompt))
        if result.ready:
            self._late.discard(result.ready)
        return advances

    def _commit_run(self, plan: Plan, runs: Sequence[Sequence[int]]) -> list[RequestTokens]:
        advances = []
        for request, tokens in zip(plan.requests, runs, strict=True):
            if request in self._running:
                request.tokens.extend(tokens)
                request.computed = len(request.tokens) - 1
                self._cache.publish(request, request.computed)
                advances.append(RequestTokens(request, tokens, self._advance(request, tokens)))
        return advances

    def _defer(self, request: Request, piece: Slice) -> None:
        """Compute the last position of `piece` again, for which no token was sampled, and charge for the step."""
        request.computed = min(request.computed, piece.stop - 1)
        self._late.add(request)
        self.queue.charge_deferred(request)

    def _advance(self, request: Request, tokens: Sequence[int]) -> FinishReason | None:
        """Charge for the last `tokens` of `request`, and end it if they complete its output; return why it ends."""
        self.queue.charge(request, len(tokens))
        last, sampling = tokens[-1], request.sampling
        if last in sampling.stop_token_ids or (last in self._eos and not sampling.ignore_eos):
            finish = FinishReason.STOP
        elif len(request.tokens) >= request.budget:
            finish = FinishReason.LENGTH
        else:
            return None
        self.queue.finish(request)
        return finish

    def fail(self, plan: Plan) -> list[Request]:
        """Give up and return the requests of the earliest uncommitted plan, whose step failed. Nothing that the step
        computed is published. A later step in flight used this one's results, so it has failed too."""
        self._in_flight.landed()
        failed = [request for request in plan.requests if request in self._running]
        for request in failed:
            self.queue.finish(request)
        return failed

    def check_invariants(self) -> None:
        """Raise AssertionError unless the steps in flight, the queue, the batch, the pages and the accounts agree."""
        self.queue.check_invariants()
        self._in_flight.check_invariants(self._running)

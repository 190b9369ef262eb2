"""Continuous batching: the queue, the running batch, and the plan of each step (plan, execute, commit).

There are no prefill and decode phases: `computed` catches up with `len(tokens)`, in chunks where the budget demands.
Under reserve admission a request gets pages for its whole budget, so that nothing that runs is ever taken back. Under
optimistic admission pages come as tokens do; when they run out, a request is preempted: it keeps its tokens, waits
again, and what it had computed is computed anew where the prefix cache has lost it.

A step may be planned while the one before is under way: a token that is being sampled counts before it is known, and
`computed` is where the plans made so far will have brought a request. Charges, ends and cached blocks come with the
commit. What a request is given beyond its end, in a step that was planned before the end was known, is passed over; its
pages go to others at once, since steps compute in the order of their plans.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, SampledLogprobs, Slice, StepResult
from local_worker.core.deadlines import Deadlines
from local_worker.core.in_flight import InFlight
from local_worker.core.kv_shares import KVShares
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.live_gap import LiveGap
from local_worker.core.plan import Advance, Plan
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from local_worker.core.service_ledger import ClientAccount, ServiceLedger
from local_worker.core.service_rate import ServiceRate
from local_worker.core.slicing import behind, shares, slice_of
from local_worker.core.waiting_queue import WaitingQueue
from serving.cost import Cost


class Batcher:
    """Owns every request from `submit` until `commit`, `fail`, `expired` or `abort` gives it up."""

    def __init__(
        self, policy: QueuePolicy, cache: PrefixCache, cost: Cost, limits: BatchLimits, eos_token_ids: Collection[int]
    ) -> None:
        self.policy = policy
        self.cache = cache
        self._limits = limits
        self._eos = frozenset(eos_token_ids)
        self.ledger = ServiceLedger(cost)
        self._gap = LiveGap()
        self._rate = ServiceRate()
        self._waiting = WaitingQueue(limits)
        self._held = KVShares(cache.pages)
        self._running: dict[Request, None] = {}
        self._deadlines = Deadlines()
        self._step_left = 0  # tokens that the step being planned can still compute
        self._in_flight = InFlight()

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def fairness_gap(self) -> int:
        """See LiveGap: to be compared with the policy's `bound_micro`."""
        return self._gap.worst

    @property
    def service_rate(self) -> float:
        """See ServiceRate: micro-units per second."""
        return self._rate.micro_per_second

    @property
    def queue(self) -> Collection[Request]:
        """Waiting requests, the longest waiting first."""
        return self._waiting.requests

    @property
    def oldest_queued_at(self) -> float | None:
        """When the longest-waiting request was queued."""
        return self._waiting.oldest_since

    def take_changed_accounts(self) -> Iterator[tuple[ClientAccount, int]]:
        """The accounts that changed since the last call, each with the client's balance."""
        return ((account, self.policy.balance(account.client)) for account in self.ledger.take_changed())

    def submit(self, request: Request, now: float) -> Request | None:
        """Queue `request`; raises TooLong, ClientLimit or QueueFull and then has changed nothing.

        Returns the request that gave way to it, when the queue was full.
        """
        self._check(request)
        displaced = self._waiting.giving_way_to(request)
        if displaced is not None:
            self.abort(displaced)
        self._waiting.add(request, now)
        self._deadlines.add(request)
        self.cache.match(request)
        self.policy.arrived(request)
        self._held.arrived(request)
        self.ledger.arrived(request)
        self._gap.watch(request.client)
        return displaced

    def _check(self, request: Request) -> None:
        self._limits.check_size(request, self.cache.pages * self.cache.block_tokens)
        self._waiting.check_client(self.ledger.waiting(request.client))

    def matched_tokens(self, request: Request) -> int:
        """StepBudget: prompt tokens that the cache holds."""
        return self.cache.match(request)

    @property
    def closed(self) -> bool:
        """StepBudget: no place in the batch, or no part of the step, is left."""
        return len(self._running) >= self._limits.max_running or self._step_left <= 0

    def admit(self, request: Request) -> int | None:
        """StepBudget: a place in the batch, pages, and a part of the step; the last to enter may need several steps.

        Who could not be computed yet waits in the queue, where the order can still change and its prefix may be cached
        meanwhile by whoever went before. What was paid once, and is computed anew, is not to be paid again.
        """
        if self.closed:
            return None
        extend = self.cache.admit(request, self._limits.tokens_on_entry(request, self.cache.block_tokens))
        if extend is None:
            return None
        self._step_left -= extend
        self._waiting.remove(request)
        self._running[request] = None
        self._held.entered(request)
        if not request.preemptions:
            request.cached = request.computed
        if request.paid:
            self.ledger.readmitted(request, extend)
            return 0
        request.paid = True
        self.ledger.admitted(request)
        return extend

    def reserve(self, request: Request) -> range:
        """StepBudget: room for output that has not been charged, as far as it is beyond the client's share."""
        needed = self._limits.tokens_on_entry(request, self.cache.block_tokens)
        fresh = 0 if request in self._running else self.cache.pages_for(needed) - request.matched_blocks
        beyond = self._held.beyond(request.client, fresh) * self.cache.block_tokens
        start = max(request.reserved, request.output_tokens)
        stop = request.output_tokens + min(beyond, needed - len(request.tokens))
        if stop <= start:
            return range(start, start)
        ahead = range(start, stop)
        self.ledger.reserved(request, ahead)
        return ahead

    def plan(self, now: float) -> Plan | None:
        """Admit what the policy chooses, then slice; None when nothing is to be computed, or not before a commit.

        At most one plan may be without its commit.
        """
        admitted: list[Request] = []
        self.policy.cached(self.cache.take_new())
        if not self._have_pages():
            if self._in_flight:
                return None  # who has to leave should leave with the token that is on its way
            # Nobody enters in the step in which somebody had to leave: it would have to leave again soon.
            self._make_room(now)
        elif self._waiting and len(self._running) < self._limits.max_running:
            self._step_left = self._limits.token_budget - sum(map(behind, self._running))
            if not self.closed:
                admitted = self.policy.select(self)
        self._gap.observe(self.ledger.backlogged)
        self._rate.observe(self.ledger.weighted, bool(self._running), now)
        shares = self._shares()
        if not shares:
            return None
        batch = Batch(tuple(self._slice(request, tokens) for request, tokens in shares))
        plan = Plan(batch, tuple(request for request, _ in shares), tuple(admitted))
        self._in_flight.launched(plan)
        return plan

    def _have_pages(self) -> bool:
        """For what everybody running is to compute: those who reserved theirs lack none."""
        return self._limits.admission is AdmissionMode.RESERVE or all(
            self.cache.extend(request, request.due) for request in self._running
        )

    def _make_room(self, now: float) -> None:
        """Pages for what everybody running is to compute, oldest first; the policy names who has to leave for that."""
        for request in list(self._running):
            while request in self._running and not self.cache.extend(request, request.due):
                self._preempt(self.policy.victim(list(self._running)[1:]), now)

    def _preempt(self, request: Request, now: float) -> None:
        del self._running[request]
        self._held.preempted(request)
        self.cache.release(request)
        request.computed = 0
        request.preemptions += 1
        self._waiting.put_back(request, now)
        self.cache.match(request)
        self.policy.preempted(request)
        self.ledger.preempted(request)

    def _shares(self) -> list[tuple[Request, int]]:
        """Who computes how many tokens in the step that is planned."""
        return list(shares(self._running, self._limits.token_budget))

    def _slice(self, request: Request, tokens: int) -> Slice:
        return slice_of(request, tokens, self._in_flight.source(request))

    def commit(self, plan: Plan, result: StepResult) -> list[Advance]:
        """Take in the tokens of the earliest plan without a commit. Who has left meanwhile is passed over: neither
        published nor charged."""
        self._in_flight.landed()
        sampled = iter(zip(result.tokens, result.logprobs or repeat(None), strict=False))
        advances = []
        for request, piece in plan.parts:
            made = next(sampled) if piece.samples else None
            if request not in self._running:
                continue
            self.cache.publish(request, piece.stop)
            if made is not None:
                token, logprobs = made
                request.tokens.append(token)
                advances.append(self._advance(request, (token,), logprobs))
        return advances

    def _advance(self, request: Request, tokens: Sequence[int], logprobs: SampledLogprobs | None = None) -> Advance:
        """`request` has `tokens` more, which it holds already."""
        self.policy.generated(request, len(tokens))
        self.ledger.generated(request, len(tokens))
        finish = self._finish(request, tokens[-1])
        if finish is not None:
            self._retire(request)
        return Advance(request, tokens, finish, logprobs)

    def _finish(self, request: Request, token: int) -> FinishReason | None:
        sampling = request.sampling
        if token in sampling.stop_token_ids or (token in self._eos and not sampling.ignore_eos):
            return FinishReason.STOP
        return FinishReason.LENGTH if request.output_tokens >= sampling.max_tokens else None

    def fail(self, plan: Plan) -> list[Request]:
        """The earliest plan's step failed: its requests leave, and nothing that it should have computed is published.

        A step that was launched after it has computed on what this one left: it has failed too.
        """
        self._in_flight.landed()
        failed = [request for request in plan.requests if request in self._running]
        for request in failed:
            self._retire(request)
        return failed

    def abort(self, request: Request) -> None:
        """Give `request` up, waiting or running; does nothing when it is neither."""
        if request in self._waiting:
            self._waiting.remove(request)
            self._deadlines.discard(request)
            self.policy.withdrawn(request)
            self._held.left(request)
            self.ledger.withdrawn(request)
        elif request in self._running:
            self._retire(request)

    def expired(self, now: float) -> list[Request]:
        """Give up every request whose deadline has passed."""
        late = self._deadlines.take_passed(now)
        for request in late:
            self.abort(request)
        return late

    def next_deadline(self) -> float | None:
        """When `expired` has something to do at the earliest."""
        return self._deadlines.next()

    def _retire(self, request: Request) -> None:
        del self._running[request]
        self._deadlines.discard(request)
        self.cache.release(request)
        self.policy.finished(request)
        self._held.left(request)
        self.ledger.finished(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless queue, batch, pages and accounts agree."""
        both = [request.id for request in self._running if request in self._waiting]
        assert not both, f"waiting and running: {both}"
        assert self.policy.waiting == len(self._waiting), f"policy {self.policy.waiting}, batcher {len(self._waiting)}"
        self._in_flight.check_invariants(self._running)
        self._waiting.check_invariants()
        self._deadlines.check_invariants()
        self._rate.check_invariants()
        self._held.check_invariants(self.queue, self._running)
        self.cache.check_invariants(list(self._running))
        self.policy.check_invariants()

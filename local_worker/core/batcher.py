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

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, Entry, SampledLogprobs, Slice, StepResult
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
    """The owner of every request from `submit` until `commit`, `fail`, `expired` or `abort` gives it up."""

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
        self._kv_shares = KVShares(cache.pages)
        self._running: dict[Request, None] = {}
        self._deadlines = Deadlines()
        self._step_left = 0  # number of tokens that the step being planned can still compute
        self._in_flight = InFlight()
        self._left: list[int] = []  # requests that have left the running batch since the last plan, by arrival

    @property
    def running(self) -> int:
        """The number of requests in the running batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._waiting)

    @property
    def fairness_gap(self) -> int:
        """The largest observed service gap in micro-units, to compare with the policy's `bound_micro`; see LiveGap."""
        return self._gap.worst

    @property
    def service_rate(self) -> float:
        """The rate of service over weight in micro-units per second; see ServiceRate."""
        return self._rate.micro_per_second

    @property
    def queue(self) -> Collection[Request]:
        """The waiting requests, the longest waiting first."""
        return self._waiting.requests

    @property
    def oldest_queued_at(self) -> float | None:
        """The time (seconds) at which the longest waiting request was queued; None when the queue is empty."""
        return self._waiting.oldest_since

    def take_changed_accounts(self) -> Iterator[tuple[ClientAccount, int]]:
        """Return the accounts that changed since the last call, each with the client's balance in micro-units."""
        return ((account, self.policy.balance(account.client)) for account in self.ledger.take_changed())

    def submit(self, request: Request, now: float) -> Request | None:
        """Queue `request`; raise TooLong, ClientLimit or QueueFull, and change nothing, if it cannot be queued. Return
        the waiting request that was dropped for it, if the queue was full."""
        self._check(request)
        displaced = self._waiting.request_to_drop_for(request)
        if displaced is not None:
            self.abort(displaced)
        self._waiting.add(request, now)
        self._deadlines.add(request)
        self.cache.match(request)
        self.policy.arrived(request)
        self._kv_shares.arrived(request)
        self.ledger.arrived(request)
        self._gap.watch(request.client)
        return displaced

    def _check(self, request: Request) -> None:
        self._limits.check_size(request, self.cache.pages * self.cache.block_tokens)
        self._waiting.check_client(self.ledger.waiting(request.client))

    def matched_tokens(self, request: Request) -> int:
        """Return the number of prompt tokens that are cached now; see StepBudget."""
        return self.cache.match(request)

    @property
    def closed(self) -> bool:
        """Whether the batch has no place left, or the step no token; see StepBudget."""
        return len(self._running) >= self._limits.max_running or self._step_left <= 0

    def admit(self, request: Request) -> int | None:
        """Give `request` a place in the batch, pages, and part of the step's tokens; see StepBudget.

        Only the last admitted request may need several steps. Later requests stay queued: their order can still change,
        and earlier requests may cache their prefix meanwhile. A preempted request is not charged for being computed
        again: the method returns 0 for it.
        """
        if self.closed:
            return None
        extend = self.cache.admit(request, self._limits.tokens_on_entry(request, self.cache.block_tokens))
        if extend is None:
            return None
        self._step_left -= extend
        self._waiting.remove(request)
        self._running[request] = None
        self._kv_shares.entered(request)
        if not request.preemptions:
            request.cached = request.computed
        if request.paid:
            self.ledger.readmitted(request, extend)
            return 0
        request.paid = True
        self.ledger.admitted(request)
        return extend

    def reserve(self, request: Request) -> range:
        """Return the output tokens to charge ahead: those whose pages exceed the client's share; see StepBudget."""
        needed = self._limits.tokens_on_entry(request, self.cache.block_tokens)
        fresh = 0 if request in self._running else self.cache.pages_for(needed) - request.matched_blocks
        beyond = self._kv_shares.beyond(request.client, fresh) * self.cache.block_tokens
        start = max(request.reserved, request.output_tokens)
        stop = request.output_tokens + min(beyond, needed - len(request.tokens))
        if stop <= start:
            return range(start, start)
        ahead = range(start, stop)
        self.ledger.reserved(request, ahead)
        return ahead

    def plan(self, now: float) -> Plan | None:
        """Admit requests as the policy chooses, and divide the step among the running ones. Return None if there is
        nothing to compute, or nothing before the next commit. At most one plan may be uncommitted at the call."""
        admitted: list[Request] = []
        self.policy.cached(self.cache.take_new())
        if not self._extend_pages():
            if self._in_flight:
                return None  # a request that is preempted should keep its token in flight: commit first
            # No request enters in a step with a preemption: it would soon be preempted itself.
            self._preempt_for_pages(now)
        elif self._waiting and len(self._running) < self._limits.max_running:
            self._step_left = self._limits.token_budget - sum(map(behind, self._running))
            if not self.closed:
                admitted = self.policy.select(self)
        self._gap.observe(self.ledger.backlogged)
        self._rate.observe(self.ledger.weighted, bool(self._running), now)
        parts = self._shares()
        if not parts:
            return None
        entered = tuple(Entry(request.arrival, tuple(request.tokens)) for request in admitted)
        batch = Batch(tuple(self._slice(request, tokens) for request, tokens in parts), entered, tuple(self._left))
        self._left.clear()
        plan = Plan(batch, tuple(request for request, _ in parts), tuple(admitted))
        self._in_flight.launched(plan)
        return plan

    def _extend_pages(self) -> bool:
        """Give the running requests pages for their due tokens; return False if pages run out. Reserved pages always
        suffice."""
        return self._limits.admission is AdmissionMode.RESERVE or all(
            self.cache.extend(request, request.due) for request in self._running
        )

    def _preempt_for_pages(self, now: float) -> None:
        """Give each running request its missing pages, oldest first; preempt the requests that the policy names until
        they fit."""
        for request in list(self._running):
            while request in self._running and not self.cache.extend(request, request.due):
                self._preempt(self.policy.victim(list(self._running)[1:]), now)

    def _preempt(self, request: Request, now: float) -> None:
        del self._running[request]
        self._left.append(request.arrival)
        self._kv_shares.preempted(request)
        self.cache.release(request)
        request.computed = 0
        request.preemptions += 1
        self._waiting.put_back(request, now)
        self.cache.match(request)
        self.policy.preempted(request)
        self.ledger.preempted(request)

    def _shares(self) -> list[tuple[Request, int]]:
        """Return the requests that take part in the step, each with its number of tokens."""
        return list(shares(self._running, self._limits.token_budget))

    def _slice(self, request: Request, tokens: int) -> Slice:
        return slice_of(request, tokens, self._in_flight.source(request))

    def commit(self, plan: Plan, result: StepResult) -> list[Advance]:
        """Append the samples of the earliest uncommitted plan; return the progress of each request that got one.
        Requests that have left the batch since are skipped: they are neither charged nor are their blocks published."""
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
        """Charge for the last `tokens` of `request`, and end it if they complete its output."""
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
        """Give up and return the requests of the earliest uncommitted plan, whose step failed. Nothing that the step
        computed is published. A later step in flight used this one's results, so it has failed too."""
        self._in_flight.landed()
        failed = [request for request in plan.requests if request in self._running]
        for request in failed:
            self._retire(request)
        return failed

    def abort(self, request: Request) -> None:
        """Give up a waiting or running `request`; do nothing for any other."""
        if request in self._waiting:
            self._waiting.remove(request)
            self._deadlines.discard(request)
            self.policy.withdrawn(request)
            self._kv_shares.left(request)
            self.ledger.withdrawn(request)
        elif request in self._running:
            self._retire(request)

    def expired(self, now: float) -> list[Request]:
        """Give up and return every request whose deadline is not after `now` (seconds)."""
        late = self._deadlines.take_passed(now)
        for request in late:
            self.abort(request)
        return late

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of a request in seconds; None when no request has one."""
        return self._deadlines.next()

    def _retire(self, request: Request) -> None:
        del self._running[request]
        self._left.append(request.arrival)
        self._deadlines.discard(request)
        self.cache.release(request)
        self.policy.finished(request)
        self._kv_shares.left(request)
        self.ledger.finished(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the batch, the pages and the policy's accounts agree."""
        both = [request.id for request in self._running if request in self._waiting]
        assert not both, f"waiting and running: {both}"
        assert self.policy.waiting == len(self._waiting), f"policy {self.policy.waiting}, batcher {len(self._waiting)}"
        self._in_flight.check_invariants(self._running)
        self._waiting.check_invariants()
        self._deadlines.check_invariants()
        self._rate.check_invariants()
        self._kv_shares.check_invariants(self.queue, self._running)
        self.cache.check_invariants(list(self._running))
        self.policy.check_invariants()

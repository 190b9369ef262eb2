"""The requests of one worker, waiting or running, and their way from the queue into the running batch.

What runs the batch is a subclass's: the engine of this process, step by step (Batcher), or an engine with a loop of its
own (LateBinding). Both admit requests by the same rule, so that the bounds of the policies hold for both.
"""

from collections.abc import Collection

from local_worker.core.block_cache import BlockCache
from local_worker.core.deadlines import Deadlines
from local_worker.core.kv_shares import KVShares
from local_worker.core.limits import BatchLimits
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.request import Request
from local_worker.core.service_ledger import ClientAccount, ServiceLedger
from local_worker.core.service_rate import ServiceRate
from local_worker.core.waiting_queue import WaitingQueue
from serving.cost import Cost


class BatchAdmission:
    """The owner of every request from `submit` until the request ends, is aborted or expires.

    It is the StepBudget that the policy uses: a subclass sets `_step_left` and calls the policy's `select`.
    """

    cache: BlockCache
    _step_left: int  # number of tokens that requests entering now can still compute

    def __init__(self, policy: QueuePolicy, cache: BlockCache, cost: Cost, limits: BatchLimits) -> None:
        self.policy = policy
        self.cache = cache
        self._limits = limits
        self.ledger = ServiceLedger(cost, levels=policy.levels)
        self._rate = ServiceRate()
        self._waiting = WaitingQueue(limits, policy.levels)
        self._kv_shares = KVShares(cache.pages, policy.levels)
        self._running: dict[Request, None] = {}
        self._deadlines = Deadlines()

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
        return self.ledger.shares.worst_gap

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

    def take_changed_accounts(self) -> list[tuple[ClientAccount, int]]:
        """Return the accounts that changed since the last call, each with the client's balance in micro-units."""
        return [(account, self.policy.balance(account.client)) for account in self.ledger.take_changed()]

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
        return displaced

    def _check(self, request: Request) -> None:
        self._limits.check_size(request, self.cache.pages * self.cache.block_tokens)
        self._waiting.check_limits(request, self.ledger.waiting(request.client))

    def matched_tokens(self, request: Request) -> int:
        """Return the number of prompt tokens that are cached now; see StepBudget."""
        return self.cache.match(request)

    def awaits_prefix(self, request: Request) -> bool:
        """Return False: an engine of its own decides what it computes twice; see StepBudget."""
        return False

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
        beyond = self._kv_shares.beyond(request, fresh) * self.cache.block_tokens
        start = max(request.reserved, request.output_tokens)
        ahead = range(start, request.output_tokens + min(beyond, needed - len(request.tokens)))
        if ahead:
            self.ledger.reserved(request, ahead)
        return ahead

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

    def _observe(self, now: float) -> None:
        """Measure the gap and the rate; to be called once after each `select`."""
        self.ledger.shares.observe()
        self._rate.observe(self.ledger.weighted, bool(self.waiting), now)

    def _charge(self, request: Request, tokens: int) -> None:
        """Charge for the last `tokens` tokens that were generated for a running `request`."""
        self.policy.generated(request, tokens)
        self.ledger.generated(request, tokens)

    def _charge_deferred(self, request: Request) -> None:
        """Charge for a step in which a running `request` took a place, but missed its token by its own doing."""
        self.policy.deferred(request)
        self.ledger.deferred(request)

    def _retire(self, request: Request) -> None:
        del self._running[request]
        self._deadlines.discard(request)
        self.cache.release(request)
        self.policy.finished(request)
        self._kv_shares.left(request)
        self.ledger.finished(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the batch, the pages and the policy's accounts agree."""
        both = [request.id for request in self._running if request in self._waiting]
        assert not both, f"waiting and running: {both}"
        assert self.policy.waiting == len(self._waiting), f"policy {self.policy.waiting}, queue {len(self._waiting)}"
        self._waiting.check_invariants()
        self._deadlines.check_invariants()
        self._rate.check_invariants()
        self._kv_shares.check_invariants(self.queue, self._running)
        self.cache.check_invariants(list(self._running))
        self.policy.check_invariants()

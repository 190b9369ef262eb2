"""The requests of one worker, waiting or running, and their way from the queue into the running batch.

Two batches use a queue: that of an engine of this process, step by step (Batcher), and that of an engine with a loop of
its own (ExternalBatch). Both admit requests by the same rule, so that the bounds of the policies hold for both.
"""

import heapq
from typing import Generic, Protocol, TypeVar

from fairlead.errors import TooLong
from local_worker.core.accounts.service_ledger import Charging, ServiceLedger, ServiceRate
from local_worker.core.block_cache import BlockCache
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.policies.protocol import ClassedPolicy, QueuePolicy
from local_worker.core.request import Request
from local_worker.core.waiting_queue import WaitingQueue
from serving.cost import Cost

SPARE = 16  # entries of removed requests that a small heap may keep


class Deadlines:
    """A heap of requests by deadline, with lazy deletion.

    The heap is rebuilt when removed requests are the larger part of it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._watched: dict[Request, None] = {}

    def add(self, request: Request) -> None:
        """Watch `request`; do nothing if it has no deadline."""
        if request.deadline is not None:
            self._watched[request] = None
            heapq.heappush(self._heap, (request.deadline, request.arrival, request))

    def discard(self, request: Request) -> None:
        """Stop watching `request`; do nothing if it is not watched."""
        if request in self._watched:
            del self._watched[request]
            self._compact()

    def next(self) -> float | None:
        """Return the earliest deadline in seconds; None when no request is watched."""
        while self._heap and self._heap[0][2] not in self._watched:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_passed(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadline is not after `now` (seconds), earliest deadline first."""
        passed = []
        while (deadline := self.next()) is not None and deadline <= now:
            request = heapq.heappop(self._heap)[2]
            del self._watched[request]
            passed.append(request)
        self._compact()
        return passed

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._watched) + SPARE:
            self._heap = [entry for entry in self._heap if entry[2] in self._watched]
            heapq.heapify(self._heap)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the heap holds each watched request once, and not too many removed requests."""
        watched = [request for _, _, request in self._heap if request in self._watched]
        assert len(watched) == len(self._watched) == len({*watched}), (
            f"{len(watched)} of {len(self._watched)} in the heap"
        )
        assert len(self._heap) <= 2 * len(self._watched) + SPARE, f"{len(self._heap)} entries for {len(self._watched)}"


Cache = TypeVar("Cache", bound=BlockCache, covariant=True)


class RequestObserver(Protocol):
    """A part of the core that follows every request from its arrival until it is withdrawn or has finished."""

    def arrived(self, request: Request) -> None:
        """Record that `request` has joined the queue."""

    def preempted(self, request: Request) -> None:
        """Record that `request` has left the running batch for the queue."""

    def withdrawn(self, request: Request) -> None:
        """Record that `request` has left the queue without being served."""

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch for any reason but a preemption."""


class RequestQueue(Generic[Cache]):
    """The owner of every request from `submit` until the request finishes, is aborted or expires.

    It is the StepBudget that the policy uses during `select`.
    """

    def __init__(self, policy: QueuePolicy | ClassedPolicy, cache: Cache, cost: Cost, limits: BatchLimits) -> None:
        self.policy = policy
        # Of interactive and of background requests, which may have the same.
        self._policies: tuple[QueuePolicy, QueuePolicy] = (
            (policy.interactive, policy.background) if isinstance(policy, ClassedPolicy) else (policy, policy)
        )
        self.cache = cache
        self.limits = limits
        self.accounts = policy.accounts
        self.ledger = ServiceLedger(cost, self.accounts)
        self._charging = Charging(cost)
        self.waiting = WaitingQueue(limits, self.accounts)
        self.running: dict[Request, None] = {}  # in order of admission
        self._deadlines = Deadlines()
        self.rate = ServiceRate()
        self._left: list[Request] = []  # requests that have left the running batch since `take_left`
        self._tokens_left = 0  # number of tokens that requests entering now can still compute
        self._places_left = 0
        # Every event of a request reaches all of its class, in this order: the others read the numbers of the request's
        # accounts, the policy reads what the cache has matched, and the ledger counts what the policy has charged.
        self._observers: tuple[tuple[RequestObserver, ...], ...] = tuple(
            (each.accounts, cache, each, self.ledger) for each in self._policies
        )

    def policy_of(self, request: Request) -> QueuePolicy:
        return self._policies[request.background]

    def submit(self, request: Request, now: float) -> Request | None:
        """Queue `request`; raise TooLong, ClientLimit or QueueFull, and change nothing, if it cannot be queued. Return
        the waiting request that was dropped for it, if the queue was full."""
        request.path = self.policy_of(request).accounts.path(request)
        self.check(request)
        displaced = self.waiting.request_to_drop_for(request)
        if displaced is not None:
            self.abort(displaced)
        self._deadlines.add(request)
        for observer in self._observers[request.background]:
            observer.arrived(request)
        self.waiting.add(request, now)
        return displaced

    def check(self, request: Request) -> None:
        """Raise TooLong or ClientLimit if `request` may not be queued."""
        # Output tokens of earlier attempts count against the output's limit, not against the prompt's.
        prompt_tokens, most = request.prompt_tokens - request.seed_position, self.limits.max_prompt_tokens
        if prompt_tokens > most:
            raise TooLong(f"at most {most} prompt tokens, got {prompt_tokens}", "prompt")
        if request.budget > (capacity := self.cache.pages * self.cache.block_tokens):
            message = f"{request.prompt_tokens} prompt tokens and max_tokens {request.sampling.max_tokens}"
            message += f" make {request.budget}; the KV cache holds {capacity}"
            raise TooLong(message, "sampling.max_tokens")
        self.waiting.check_limits(request)

    def note_cached_blocks(self) -> None:
        """Report to the policy the blocks that were cached since the last call."""
        if digests := self.cache.changes.take_new():
            self.policy.cached(digests)

    def select(self, tokens: int, places: int) -> list[Request]:
        """Admit the waiting requests that the policy chooses, and return them.

        They compute at most `tokens` tokens in the next step, but for the last one, and take at most `places` places.
        """
        self._tokens_left, self._places_left = tokens, places
        return self.policy.select(self) if self.waiting and not self.closed else []

    @property
    def choosable(self) -> int:
        """The number of waiting requests among which the policy chooses: all of them."""
        return len(self.waiting)

    @property
    def closed(self) -> bool:
        """Whether the batch has no place left, or the step no token; see StepBudget."""
        return self._places_left <= 0 or self._tokens_left <= 0

    def matched_tokens(self, request: Request) -> int:
        """Return the number of prompt tokens that are cached now; see StepBudget."""
        return self.cache.match(request)

    def awaits_prefix(self, request: Request) -> bool:
        """Return whether a running request computes the block that `request` misses first; see StepBudget."""
        return not self.closed and self.cache.is_underway(request)

    def admit(self, request: Request) -> int | None:
        """Give `request` a place in the batch, pages, and part of the step's tokens; see StepBudget.

        Only the last admitted request may need several steps. Later requests stay queued: their order can still change,
        and earlier requests may cache their prefix meanwhile. A preempted request is not charged for being computed
        again: the method returns 0 for it.
        """
        if self.closed:
            return None
        if not self.enter(request):
            return None
        extend = len(request.tokens) - request.computed
        self.policy_of(request).accounts.planned(request)
        self._tokens_left -= extend
        self._places_left -= 1
        if request.is_charged:
            self.ledger.recomputed(request, extend, 0)
            return 0
        request.charged = request.prompt_tokens
        self.ledger.extended(request, self._charging.extend(request, extend))
        return extend

    def enter(self, request: Request) -> bool:
        """Give a waiting `request` pages in the running batch; return False, and change nothing, if they do not fit.

        The request is open then: `AccountTree.planned` tells that steps were given all of its prompt.
        """
        if self.cache.admit(request, self.tokens_on_entry(request)) is None:
            return False
        self.waiting.remove(request)
        self.running[request] = None
        self.policy_of(request).accounts.admitted(request)
        if request.is_charged:
            self.ledger.readmitted(request)
        else:
            found = max(0, request.computed - request.charged)
            request.cached += found
            request.charged += found
            self.ledger.admitted(request, found)
        return True

    def charge_slice(self, request: Request, start: int, stop: int, payer: Request) -> int:
        """Record that a step computes the tokens `[start, stop)` of an open `request` in the name of `payer`; return
        their cost in micro-units, not divided by a weight.

        What was charged before is no service to the client, but withheld from others while it is computed again.
        """
        first, last = max(start, request.charged), min(stop, request.prompt_tokens)
        fresh = again = 0
        if first < last:
            request.charged = last
            fresh = self._charging.part(request, first, last)
            self.ledger.extended(payer, fresh)
        if repeated := stop - start - max(0, last - first):
            again = self._charging.again(repeated)
            self.ledger.recomputed(payer, repeated, again)
        return fresh + again

    def tokens_on_entry(self, request: Request) -> int:
        """Return for how many tokens `request` must get pages when it enters the running batch.

        Under optimistic admission the headroom doubles with each preemption, so that no request is preempted for ever.
        """
        if self.limits.admission is AdmissionMode.RESERVE:
            return request.budget
        return min(request.budget, len(request.tokens) + (self.cache.block_tokens << request.preemptions))

    def reserve(self, request: Request, most: int | None = None) -> range:
        """Return the output tokens to charge ahead: those whose pages exceed the client's share; see StepBudget."""
        needed = self.tokens_on_entry(request)
        fresh = 0 if request in self.running else self.cache.pages_for(needed) - request.matched_blocks
        beyond = request.account.beyond_share(self.cache.pages, fresh) * self.cache.block_tokens
        generated = request.output_tokens
        start = max(request.reserved, generated)
        ahead = range(start, generated + min(beyond, needed - len(request.tokens)))[:most]
        if ahead:
            self.ledger.reserved(request, ahead)
        return ahead

    def observe(self, now: float) -> None:
        """Measure the gap and the rate; to be called once after each `select`."""
        self.ledger.observe()
        self.rate.observe(self.ledger.weighted, bool(self.waiting), now)

    def charge(self, request: Request, tokens: int) -> None:
        """Charge for the last `tokens` tokens that were generated for a running `request`."""
        self._policies[request.background].generated(request, tokens)
        self.ledger.generated(request, tokens)

    def charge_deferred(self, request: Request) -> None:
        """Charge for a step in which a running `request` took a place, but missed its token by its own doing."""
        self.policy_of(request).deferred(request)
        self.ledger.deferred(request)

    def preempt(self, request: Request, now: float) -> None:
        """Return a running `request`, which loses its pages, to its old place in the queue."""
        del self.running[request]
        self._left.append(request)
        request.computed = 0
        request.scores.clear()
        request.preemptions += 1
        self.waiting.put_back(request, now)
        for observer in self._observers[request.background]:
            observer.preempted(request)

    def abort(self, request: Request) -> None:
        """Give up a waiting or running `request`; do nothing for any other."""
        if request in self.waiting:
            self.waiting.remove(request)
            self._deadlines.discard(request)
            for observer in self._observers[request.background]:
                observer.withdrawn(request)
        elif request in self.running:
            self.finish(request)

    def finish(self, request: Request) -> None:
        """Remove a running `request`, which has ended, and release its pages."""
        del self.running[request]
        self._left.append(request)
        self._deadlines.discard(request)
        for observer in self._observers[request.background]:
            observer.finished(request)

    def take_left(self) -> list[Request]:
        """Return the requests that have left the running batch since the last call."""
        left, self._left = self._left, []
        return left

    def expired(self, now: float) -> list[Request]:
        """Give up and return every request whose deadline is not after `now` (seconds)."""
        late = self._deadlines.take_passed(now)
        for request in late:
            self.abort(request)
        return late

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of a request in seconds; None when no request has one."""
        return self._deadlines.next()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the batch, the pages and the policy's accounts agree."""
        both = [request.id for request in self.running if request in self.waiting]
        assert not both, f"waiting and running: {both}"
        assert self.policy.waiting == self.choosable, f"policy {self.policy.waiting}, queue {self.choosable}"
        self.waiting.check_invariants()
        self._deadlines.check_invariants()
        self.rate.check_invariants()
        self.accounts.check_invariants(self.waiting, self.running)
        self.cache.check_invariants(list(self.running))
        self.policy.check_invariants()

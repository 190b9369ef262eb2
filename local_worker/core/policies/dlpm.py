"""Deficit Longest Prefix Match (DLPM Algorithm 1), the default policy. Unit of fairness: service received per client.

Bound: the services of two continuously backlogged clients differ by at most 2 (U + Q^u) (Theorem 4.1); the same holds
against clients that are not backlogged (Theorem 4.2). U = w_e L_input + w_q M under reserve admission, plus one longest
output for barriers. Among clients with a positive deficit the longest prefix match goes first, so locality is lost only
where the order passes from one client to another.

The bound holds for any order among clients with credit. A step therefore looks up a bounded number of matches that may
have changed, and tries a bounded number of requests that do not fit: its cost does not grow with the queue.
"""

from collections.abc import Sequence

from local_worker.core.charging import Charging
from local_worker.core.policies.client_priority_queue import ClientPriorityQueue
from local_worker.core.policies.deficit_accounts import DeficitAccounts
from local_worker.core.policies.missing_block_index import MissingBlockIndex
from local_worker.core.policies.prefix_match_queue import Key, PrefixMatchQueue
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.cost import MICRO, charge

# Number of admissions that may pass a request that does not fit and whose client has credit, before it is a barrier.
MAX_BYPASS = 32
# Number of admissions of the same client that may pass its earliest request, before that request goes first.
MAX_PASSED = 64
# Largest number of requests that a step tries and that do not fit.
MAX_MISFITS = 32
# Largest number of requests that a step looks up because their match may have changed.
MAX_REMATCHED = 16


class Dlpm:
    """DLPM, where `balance` is the deficit counter q_i, always in `(-U, Q^u]`; it is 0 for a client never charged.

    `strict_paper` leaves out the additions to the paper: interactions first, barriers, promotion, charges for reserved
    room.
    """

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._config = config
        self._strict = config.strict_paper
        self._accounts = DeficitAccounts(config.quantum_tokens * MICRO, config.most_idle)
        self._queues: dict[str, PrefixMatchQueue] = {}  # client -> its waiting requests, never empty
        self._block_tokens = config.block_tokens
        self._missing = MissingBlockIndex(config.block_tokens)
        self._in_credit = ClientPriorityQueue()  # waiting clients by the key of their best request
        self._in_debt = ClientPriorityQueue()  # waiting clients by the round that gives them credit
        self._count = 0  # number of waiting requests
        self._running: dict[str, int] = {}  # client -> number of running requests
        self._bypassed: dict[Request, int] = {}  # number of admissions that passed the request
        self._barrier: Request | None = None
        self._raised_barrier: dict[str, None] = {}  # clients that raised a barrier in this round

    @property
    def bound_micro(self) -> int:
        """The bound of Theorem 4.1 in micro-units; see QueuePolicy."""
        return 2 * (self._most_per_balance + self._accounts.quantum)

    @property
    def balance_range_micro(self) -> tuple[int, int]:
        """The range of a balance by Theorem A.1 in micro-units; see QueuePolicy."""
        return -self._most_per_balance, self._accounts.quantum

    @property
    def _most_per_balance(self) -> int:
        """The constant U in micro-units.

        A barrier enters when its client's running requests may have used the whole memory once, so its own output is
        added.
        """
        return self._config.most_per_balance + (0 if self._strict else self._config.most_output)

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return self._count

    @property
    def remembered(self) -> int:
        """See QueuePolicy."""
        return len(self._accounts)

    def arrived(self, request: Request) -> None:
        """Queue `request` as lines 11-13 do; see QueuePolicy."""
        self._config = self._config.seen(request.weight)
        client, matched = request.client, request.matched_blocks * self._block_tokens
        self._accounts.busy(client)
        queue = self._queues.setdefault(client, PrefixMatchQueue(None if self._strict else MAX_PASSED))
        queue.add(request, self._key(request, matched))
        self._missing.arrived(request, matched)
        self._count += 1
        self._rank(client)

    def preempted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._leave_batch(request)
        self.arrived(request)

    def withdrawn(self, request: Request) -> None:
        """Remove `request` from the queue; the charge for a barrier is not refunded. See QueuePolicy."""
        self._queues[request.client].remove(request)
        self._remove(request)

    def _remove(self, request: Request) -> None:
        client = request.client
        self._count -= 1
        self._missing.left(request)
        self._bypassed.pop(request, None)
        if self._barrier is request:
            self._barrier = None
        if self._queues[client]:
            self._rank(client)
        else:
            del self._queues[client]
            self._in_credit.discard(client)
            self._in_debt.discard(client)
            self._close_if_idle(client)

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a request of the client deepest in debt; see QueuePolicy."""
        return min(running, key=lambda request: (self.balance(request.client), -request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """See QueuePolicy."""
        self._missing.cached(digests)

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit requests as lines 16-25 do; see QueuePolicy."""
        for request in self._missing.take(MAX_REMATCHED):
            self._rematch(request, budget)
        admitted: list[Request] = []
        if self._barrier is not None and not self._admit(self._barrier, budget, admitted):
            return admitted
        misfits: list[Request] = []
        rematches = MAX_REMATCHED
        while len(misfits) < MAX_MISFITS and self._barrier is None:
            candidate = self._next(misfits)
            if candidate is None:
                break
            if rematches and self._rematch(candidate, budget):
                rematches -= 1
            elif self._admit(candidate, budget, admitted):
                self._count_bypass(misfits, budget)
            elif budget.closed:
                break
            else:
                # Left out until the end of the step; other requests of the client may fit.
                misfits.append(candidate)
                self._queues[candidate.client].hold(candidate)
                self._rank(candidate.client)
        for request in misfits:
            self._queues[request.client].release()
            self._rank(request.client)
        return admitted

    def _next(self, misfits: Sequence[Request]) -> Request | None:
        """Return the request with the best match among clients with credit; refill first (CHECKREFILL) if no waiting
        client has any."""
        client = self._in_credit.least()
        if client is None and not any(self._accounts.balance(misfit.client) > 0 for misfit in misfits):
            self._refill()
            client = self._in_credit.least()
        return None if client is None else self._queues[client].next()

    def _refill(self) -> None:
        """Apply lines 3-8 until a queued client has credit: as many rounds as the smallest debt needs."""
        client = self._in_debt.least()
        if client is None:
            return
        self._raised_barrier.clear()
        self._accounts.advance(self._accounts.in_credit_after(client) - self._accounts.rounds)
        while client is not None and self._accounts.balance(client) > 0:
            self._rank(client)
            client = self._in_debt.least()

    def _admit(self, request: Request, budget: StepBudget, admitted: list[Request]) -> bool:
        tokens = budget.admit(request)
        if tokens is None:
            return False
        owed = max(0, self._charging.extend(request, tokens) - request.prepaid)
        request.prepaid = 0
        self._queues[request.client].admitted(request)
        self._running[request.client] = self._running.get(request.client, 0) + 1
        self._remove(request)
        self._charge(request, owed)
        self._reserve(request, budget)
        admitted.append(request)
        return True

    def _count_bypass(self, misfits: Sequence[Request], budget: StepBudget) -> None:
        """Count that a request was admitted before `misfits`; one that was passed too often becomes a barrier."""
        if self._strict:
            return
        for request in misfits:
            self._bypassed[request] = self._bypassed.get(request, 0) + 1
            often = self._bypassed[request] >= MAX_BYPASS
            in_credit = self._accounts.balance(request.client) > 0
            if often and in_credit and self._barrier is None and request.client not in self._raised_barrier:
                self._raise_barrier(request, budget)

    def _raise_barrier(self, request: Request, budget: StepBudget) -> None:
        """Make `request` the barrier and charge for it now. A client gets one barrier per round: otherwise it could
        drain the batch by submitting and cancelling requests."""
        self._barrier = request
        self._raised_barrier[request.client] = None
        tokens = 0 if request.paid else len(request.tokens) - budget.matched_tokens(request)
        request.prepaid = self._charging.extend(request, tokens)
        self._charge(request, request.prepaid)
        self._reserve(request, budget)

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Charge for room beyond the client's share when it is taken or when a barrier keeps it free."""
        if self._strict:
            return
        ahead = budget.reserve(request)
        if ahead:
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _rematch(self, request: Request, budget: StepBudget) -> bool:
        """Look up the match of `request`; return whether its place in the order has changed."""
        queue, matched = self._queues[request.client], budget.matched_tokens(request)
        self._missing.place(request, matched)
        key = self._key(request, matched)
        if queue.key(request) == key:
            return False
        queue.move(request, key)
        self._rank(request.client)
        return True

    def _key(self, request: Request, matched: int) -> Key:
        return (not request.in_interaction and not self._strict, -matched, request.arrival)

    def _rank(self, client: str) -> None:
        """Rank a waiting client by its balance and its best request."""
        if self._accounts.balance(client) <= 0:
            self._in_credit.discard(client)
            self._in_debt.put(client, (self._accounts.in_credit_after(client),))
            return
        self._in_debt.discard(client)
        best = self._queues[client].first_key()
        if best is None:
            self._in_credit.discard(client)
        else:
            self._in_credit.put(client, best)

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens (line 27), the first one included; see QueuePolicy."""
        self._charge(request, self._charging.due(request, tokens))

    def _charge(self, request: Request, micro: int) -> None:
        client = request.client
        self._accounts.charge(client, charge(micro, request.weight))
        if client in self._queues:
            self._rank(client)

    def finished(self, request: Request) -> None:
        """Record that `request` has left the batch. The client's deficit stays until refills have paid it."""
        self._leave_batch(request)
        self._close_if_idle(request.client)

    def _leave_batch(self, request: Request) -> None:
        self._running[request.client] -= 1
        if not self._running[request.client]:
            del self._running[request.client]

    def _close_if_idle(self, client: str) -> None:
        if client not in self._queues and client not in self._running:
            self._accounts.idle(client)

    def balance(self, client: str) -> int:
        """Return q_i in micro-units; see QueuePolicy."""
        return self._accounts.balance(client)

    def check_invariants(self) -> None:
        """Raise AssertionError when a balance exceeds the quantum, or when a waiting client is not ranked as its
        balance says."""
        self._accounts.check_invariants()
        for client, queue in self._queues.items():
            assert queue, f"{client}: its queue is empty"
            in_credit = self._accounts.balance(client) > 0
            assert (client in self._in_credit, client in self._in_debt) == (in_credit, not in_credit), client
        waiting = sum(len(queue) for queue in self._queues.values())
        assert waiting == self._count, f"{waiting} requests in queues, {self._count} counted"
        self._missing.check_invariants([request for queue in self._queues.values() for request in queue.requests()])

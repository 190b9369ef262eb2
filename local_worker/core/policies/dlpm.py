"""Deficit Longest Prefix Match (DLPM Algorithm 1), the default. Unit of fairness: service received per client.

Bound: two continuously backlogged clients differ by at most 2 (U + Q^u) (Theorem 4.1); the same holds against clients
that are not backlogged (Theorem 4.2). U = w_e L_input + w_q M under reserve admission, and a longest output more for
barriers. Within a positive deficit the order is the cache's: locality is lost only where the order passes from one
client to another.

The bound holds for any order among clients with credit. A step therefore looks at a bounded number of requests whose
match may have changed and a bounded number that do not fit: its cost does not grow with the queue.
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

# Admissions that may pass a request whose client has credit but which does not fit; then it is a barrier.
MAX_BYPASS = 32
# Admissions of its own client that may pass over a client's earliest request.
MAX_PASSED = 64
# Requests tried in one step that do not fit.
MAX_MISFITS = 32
# Requests looked at in one step because their match may have changed.
MAX_REMATCHED = 16


class Dlpm:
    """`balance` is the deficit counter q_i, always in `(-U, Q^u]`; a client that was never charged has 0.

    `strict_paper` leaves out what the paper does not have: interactions first, barriers, promotion.
    """

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._config = config
        self._strict = config.strict_paper
        self._accounts = DeficitAccounts(config.quantum_tokens * MICRO, config.most_idle)
        self._lines: dict[str, PrefixMatchQueue] = {}  # clients that wait
        self._block_tokens = config.block_tokens
        self._missing = MissingBlockIndex(config.block_tokens)
        self._in_credit = ClientPriorityQueue()  # of clients that wait: best key
        self._in_debt = ClientPriorityQueue()  # of clients that wait: the round that gives them credit
        self._count = 0
        self._running: dict[str, int] = {}
        self._bypassed: dict[Request, int] = {}
        self._barrier: Request | None = None
        self._barred: dict[str, None] = {}  # clients that raised a barrier in this round

    @property
    def bound_micro(self) -> int:
        """Theorem 4.1."""
        return 2 * (self._most_per_balance + self._accounts.quantum)

    @property
    def balance_range_micro(self) -> tuple[int, int]:
        """Theorem A.1."""
        return -self._most_per_balance, self._accounts.quantum

    @property
    def _most_per_balance(self) -> int:
        """U. A barrier enters when its client's running requests may have used memory once: its output comes on top."""
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
        """Lines 11-13."""
        self._config = self._config.seen(request.weight)
        client, matched = request.client, request.matched_blocks * self._block_tokens
        self._accounts.busy(client)
        line = self._lines.setdefault(client, PrefixMatchQueue(None if self._strict else MAX_PASSED))
        line.add(request, self._key(request, matched))
        self._missing.arrived(request, matched)
        self._count += 1
        self._rank(client)

    def preempted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._leave_batch(request)
        self.arrived(request)

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy. What a barrier has been charged is not given back."""
        self._lines[request.client].remove(request)
        self._left(request)

    def _left(self, request: Request) -> None:
        client = request.client
        self._count -= 1
        self._missing.left(request)
        self._bypassed.pop(request, None)
        if self._barrier is request:
            self._barrier = None
        if self._lines[client]:
            self._rank(client)
        else:
            del self._lines[client]
            self._in_credit.discard(client)
            self._in_debt.discard(client)
            self._rest(client)

    def victim(self, running: Sequence[Request]) -> Request:
        """Of the client that is deepest in debt."""
        return min(running, key=lambda request: (self.balance(request.client), -request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """See QueuePolicy."""
        self._missing.cached(digests)

    def select(self, budget: StepBudget) -> list[Request]:
        """Lines 16-25."""
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
                self._pass(misfits, budget)
            elif budget.closed:
                break
            else:
                # Out of the order until the step's end; its client may have others that fit.
                misfits.append(candidate)
                self._lines[candidate.client].hold(candidate)
                self._rank(candidate.client)
        for request in misfits:
            self._lines[request.client].release()
            self._rank(request.client)
        return admitted

    def _next(self, misfits: Sequence[Request]) -> Request | None:
        """In the order of the best match among clients with credit; CHECKREFILL when nobody who waits has any."""
        client = self._in_credit.least()
        if client is None and not any(self._accounts.balance(misfit.client) > 0 for misfit in misfits):
            self._refill()
            client = self._in_credit.least()
        return None if client is None else self._lines[client].next()

    def _refill(self) -> None:
        """Lines 3-8 as often as it takes for a queued client to have credit: the one with the least debt decides."""
        client = self._in_debt.least()
        if client is None:
            return
        self._barred.clear()
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
        self._lines[request.client].admitted(request)
        self._running[request.client] = self._running.get(request.client, 0) + 1
        self._left(request)
        self._charge(request, owed)
        self._reserve(request, budget)
        admitted.append(request)
        return True

    def _pass(self, misfits: Sequence[Request], budget: StepBudget) -> None:
        """Somebody was admitted before `misfits`; one who has been passed often enough becomes a barrier."""
        if self._strict:
            return
        for request in misfits:
            self._bypassed[request] = self._bypassed.get(request, 0) + 1
            often = self._bypassed[request] >= MAX_BYPASS
            in_credit = self._accounts.balance(request.client) > 0
            if often and in_credit and self._barrier is None and request.client not in self._barred:
                self._raise_barrier(request, budget)

    def _raise_barrier(self, request: Request, budget: StepBudget) -> None:
        """Paid for at once, and one per client and round: else submitting and cancelling would drain the batch."""
        self._barrier = request
        self._barred[request.client] = None
        tokens = 0 if request.paid else len(request.tokens) - budget.matched_tokens(request)
        request.prepaid = self._charging.extend(request, tokens)
        self._charge(request, request.prepaid)
        self._reserve(request, budget)

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Room beyond the client's share is paid for when it is taken, or kept free by a barrier."""
        if self._strict:
            return
        ahead = budget.reserve(request)
        if ahead:
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _rematch(self, request: Request, budget: StepBudget) -> bool:
        """Look up the match anew; True when that changed the request's place."""
        line, matched = self._lines[request.client], budget.matched_tokens(request)
        self._missing.place(request, matched)
        key = self._key(request, matched)
        if line.key(request) == key:
            return False
        line.move(request, key)
        self._rank(request.client)
        return True

    def _key(self, request: Request, matched: int) -> Key:
        return (not request.in_interaction and not self._strict, -matched, request.arrival)

    def _rank(self, client: str) -> None:
        """Put a waiting client where its balance and its best request have it."""
        if self._accounts.balance(client) <= 0:
            self._in_credit.discard(client)
            self._in_debt.put(client, (self._accounts.in_credit_after(client),))
            return
        self._in_debt.discard(client)
        best = self._lines[client].first_key()
        if best is None:
            self._in_credit.discard(client)
        else:
            self._in_credit.put(client, best)

    def generated(self, request: Request, tokens: int) -> None:
        """Line 27; the first token is charged too."""
        self._charge(request, self._charging.due(request, tokens))

    def _charge(self, request: Request, micro: int) -> None:
        client = request.client
        self._accounts.charge(client, charge(micro, request.weight))
        if client in self._lines:
            self._rank(client)

    def finished(self, request: Request) -> None:
        """Deficits stay until refills have paid them."""
        self._leave_batch(request)
        self._rest(request.client)

    def _leave_batch(self, request: Request) -> None:
        self._running[request.client] -= 1
        if not self._running[request.client]:
            del self._running[request.client]

    def _rest(self, client: str) -> None:
        if client not in self._lines and client not in self._running:
            self._accounts.idle(client)

    def balance(self, client: str) -> int:
        """q_i in micro-units."""
        return self._accounts.balance(client)

    def check_invariants(self) -> None:
        """No balance above a quantum; every waiting client is ranked, in credit or in debt as its balance says."""
        self._accounts.check_invariants()
        for client, line in self._lines.items():
            assert line, f"{client} waits with nothing"
            in_credit = self._accounts.balance(client) > 0
            assert (client in self._in_credit, client in self._in_debt) == (in_credit, not in_credit), client
        waiting = sum(len(line) for line in self._lines.values())
        assert waiting == self._count, f"{waiting} requests in lines, {self._count} counted"
        self._missing.check_invariants([request for line in self._lines.values() for request in line.requests()])

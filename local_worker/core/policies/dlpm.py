"""Deficit Longest Prefix Match (DLPM Algorithm 1), the default policy. Unit of fairness: service received per client.

Bound: the services of two continuously backlogged clients differ by at most 2 (U + Q^u) (Theorem 4.1); the same holds
against clients that are not backlogged (Theorem 4.2). U = w_e L_input + w_q M under reserve admission, plus one longest
output for barriers. Among clients with a positive deficit the longest prefix match goes first, so locality is lost only
where the order passes from one client to another.

With `QueuePolicyConfig.charge` a request makes a deposit for its output when it is admitted. A balance then never falls
below the cost of one request, and rises above the quantum only by deposits that are given back.

With several levels (`QueuePolicyConfig.levels`) a request is charged to every account on its path, and has credit if
all of them have. The bound then holds at each level for siblings: see docs/fairness.md. It holds for any order
among clients with credit. A step therefore looks up a bounded number of matches that may have changed, and tries a
bounded number of requests that do not fit: its cost does not grow with the queue.
"""

from collections.abc import Sequence

from local_worker.core.charging import Charging
from local_worker.core.policies.deficit_accounts import DeficitAccount, DeficitAccounts
from local_worker.core.policies.deposits import Deposits, draw
from local_worker.core.policies.dlpm_bounds import DlpmBounds
from local_worker.core.policies.missing_block_index import MissingBlockIndex
from local_worker.core.policies.prefix_match_queue import PrefixMatchQueue, RankKey
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
    """DLPM, where `balance` is the deficit counter q_i, in `balance_range_micro`; it is 0 for a client never charged.

    `strict_paper` leaves out the additions to the paper: barriers, promotion, charges for reserved room, and waiting
    for a prefix that another request computes.
    """

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._bounds = DlpmBounds(config)
        self._deposits = Deposits(config)
        self._strict = config.strict_paper
        self.levels = config.levels
        self._accounts = DeficitAccounts(config.quantum_tokens * MICRO, len(config.levels), config.most_idle)
        self._leaves: dict[Request, DeficitAccount] = {}  # waiting or running request -> its account
        self._block_tokens = config.block_tokens
        self._missing = MissingBlockIndex(config.block_tokens)
        self._count = 0  # number of waiting requests
        self._bypassed: dict[Request, int] = {}  # number of admissions that passed the request
        self._barrier: Request | None = None

    @property
    def bound_micro(self) -> int:
        """The bound of Theorem 4.1 in micro-units; see QueuePolicy."""
        return self._bounds.gap

    @property
    def balance_range_micro(self) -> tuple[int, int]:
        """The range of a balance (Theorem A.1) in micro-units; see QueuePolicy."""
        return self._bounds.balance_range

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
        self._bounds.seen(self.levels.least_weight(request))
        matched = request.matched_blocks * self._block_tokens
        leaf = self._leaves[request] = self._accounts.open(self.levels.path(request))
        if leaf.queue is None:
            leaf.queue = PrefixMatchQueue(None if self._strict else MAX_PASSED)
        leaf.queue.add(request, self._key(request, matched))
        for account in leaf.path:
            account.waiting += 1
        self._missing.arrived(request, matched)
        self._count += 1
        leaf.rank()

    def preempted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._deposits.give_back(request)
        for account in self._leaves[request].path:
            account.running -= 1
        self.arrived(request)

    def withdrawn(self, request: Request) -> None:
        """Remove `request` from the queue; a barrier gets back its deposit, and no other charge. See QueuePolicy."""
        self._deposits.give_back(request)
        self._queue(request).remove(request)
        self._dequeue(request).rank()
        self._close(request)

    def _dequeue(self, request: Request) -> DeficitAccount:
        """Record that `request` waits no longer; return its account, to be ranked."""
        leaf = self._leaves[request]
        self._count -= 1
        self._missing.left(request)
        self._bypassed.pop(request, None)
        if self._barrier is request:
            self._barrier = None
        if not leaf.queue:
            leaf.queue = None
        for account in leaf.path:
            account.waiting -= 1
        return leaf

    def _queue(self, request: Request) -> PrefixMatchQueue:
        queue = self._leaves[request].queue
        assert queue is not None, f"{request.id} does not wait"
        return queue

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a request of the account deepest in debt, at the highest level first; see QueuePolicy."""

        def rank(request: Request) -> tuple[list[int], int]:
            return [account.balance for account in self._leaves[request].path][::-1], -request.arrival

        return min(running, key=rank)

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
        held: list[Request] = []  # left out until the end of the step; other requests of their clients may enter
        rematches = MAX_REMATCHED
        while len(held) < MAX_MISFITS and self._barrier is None:
            candidate = self._next()
            if candidate is None:
                break
            if rematches and self._rematch(candidate, budget):
                rematches -= 1
            elif not self._strict and budget.awaits_prefix(candidate):
                self._hold(candidate, held)
            elif self._admit(candidate, budget, admitted):
                self._count_bypass(misfits, budget)
            elif budget.closed:
                break
            else:
                misfits.append(candidate)
                self._hold(candidate, held)
        for request in held:
            self._queue(request).release()
            self._leaves[request].rank()
        return admitted

    def _hold(self, request: Request, held: list[Request]) -> None:
        held.append(request)
        self._queue(request).hold(request)
        self._leaves[request].rank()

    def _next(self) -> Request | None:
        """Return the best request of accounts with credit; refill first where none that waits has any (CHECKREFILL)."""
        leaf = self._accounts.next_leaf()
        return None if leaf is None or leaf.queue is None else leaf.queue.next()

    def _admit(self, request: Request, budget: StepBudget, admitted: list[Request]) -> bool:
        tokens = budget.admit(request)
        if tokens is None:
            return False
        owed = max(0, self._charging.extend(request, tokens) - request.prepaid)
        request.prepaid = 0
        self._queue(request).admitted(request)
        for account in self._leaves[request].path:
            account.running += 1
        leaf = self._dequeue(request)
        self._charge(request, owed)
        self._reserve(request, budget)
        self._deposits.make(request, leaf.path)
        leaf.rank()
        admitted.append(request)
        return True

    def _count_bypass(self, misfits: Sequence[Request], budget: StepBudget) -> None:
        """Count that a request was admitted before `misfits`; one that was passed too often becomes a barrier."""
        if self._strict:
            return
        for request in misfits:
            self._bypassed[request] = self._bypassed.get(request, 0) + 1
            is_due = self._bypassed[request] >= MAX_BYPASS and self._barrier is None
            if is_due and self._leaves[request].may_raise_barrier:
                self._raise_barrier(request, budget)

    def _raise_barrier(self, request: Request, budget: StepBudget) -> None:
        """Make `request` the barrier and charge for it now; its account is ranked at the end of the step."""
        self._barrier, leaf = request, self._leaves[request]
        leaf.raise_barrier()
        tokens = 0 if request.paid else len(request.tokens) - budget.matched_tokens(request)
        request.prepaid = self._charging.extend(request, tokens)
        self._charge(request, request.prepaid)
        self._reserve(request, budget)
        self._deposits.make(request, leaf.path)

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Charge for room beyond the client's share when it is taken or when a barrier keeps it free."""
        if self._strict:
            return
        ahead = budget.reserve(request)
        if ahead:
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _rematch(self, request: Request, budget: StepBudget) -> bool:
        """Look up the match of `request`; return whether its place in the order has changed."""
        queue, matched = self._queue(request), budget.matched_tokens(request)
        self._missing.place(request, matched)
        key = self._key(request, matched)
        if queue.key(request) == key:
            return False
        queue.move(request, key)
        self._leaves[request].rank()
        return True

    def _key(self, request: Request, matched: int) -> RankKey:
        return -matched, request.arrival

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens (line 27), the first one included; see QueuePolicy."""
        if self._charge(request, self._charging.due(request, tokens)):
            self._leaves[request].rank_waiting()

    def deferred(self, request: Request) -> None:
        """See QueuePolicy."""
        if self._charge(request, self._charging.next_output(request)):
            self._leaves[request].rank_waiting()

    def _charge(self, request: Request, micro: int) -> bool:
        """Charge the path's accounts over their weights, or the deposit; return whether one has no credit now."""
        deposit, is_dry = self._deposits.of(request), False
        highest = charge(micro, request.weight)
        below = highest if request.user_weight == request.weight else charge(micro, request.user_weight)
        for account in self._leaves[request].path:
            owed = highest if account.group.parent is None else below
            if deposit is not None:
                owed = draw(deposit, account, owed)
            is_dry |= account.charge(owed) <= 0
        return is_dry

    def finished(self, request: Request) -> None:
        """Give back what is left of the deposit; the client's deficit stays until refills pay it. See QueuePolicy."""
        if self._deposits.give_back(request):
            self._leaves[request].rank()
        for account in self._leaves[request].path:
            account.running -= 1
        self._close(request)

    def _close(self, request: Request) -> None:
        """Let go of a request that neither waits nor runs, and of the accounts that have no other."""
        for account in self._leaves.pop(request).path:
            if not account.waiting and not account.running:
                account.group.close(account)

    def balance(self, client: str) -> int:
        """Return q_i in micro-units; see QueuePolicy."""
        return self._accounts.balance(self.levels.client_path(client))

    def balance_at(self, path: Sequence[str]) -> int:
        """Return the balance in micro-units at the end of `path`, whose names begin at the highest level."""
        return self._accounts.balance(path)

    def deposits_at(self, path: Sequence[str]) -> int:
        """Return what is left of the deposits of the account at the end of `path`, in micro-units over its weight."""
        return self._deposits.at(path)

    def check_invariants(self) -> None:
        """Raise AssertionError when a balance exceeds its range, or when a waiting account is not ranked as its balance
        says."""
        self._accounts.check_invariants(self._bounds.balance_range[1])
        self._deposits.check_invariants()
        waiting: list[Request] = []
        for leaf in dict.fromkeys(self._leaves.values()):
            assert leaf.queue is None or leaf.queue, f"{leaf.name}: its queue is empty"
            requests = leaf.queue.requests() if leaf.queue is not None else []
            assert leaf.waiting == len(requests), f"{leaf.name}: {leaf.waiting} requests wait, {len(requests)} in queue"
            waiting += requests
        assert len(waiting) == self._count, f"{len(waiting)} requests in queues, {self._count} counted"
        self._missing.check_invariants(waiting)

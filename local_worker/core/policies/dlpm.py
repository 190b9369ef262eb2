"""Deficit Longest Prefix Match (DLPM Algorithm 1) over whole requests. Unit of fairness: service received per client.

Bound: the services of two continuously backlogged clients differ by at most 2 (U + Q^u) (Theorem 4.1); the same holds
against clients that are not backlogged (Theorem 4.2). U = w_e L_input + w_q M under reserve admission. Among clients
with a positive deficit the longest prefix match goes first, so locality is lost only where the order passes from one
client to another.

With several levels (`QueuePolicyConfig.levels`) a request is charged to every account on its path, and has credit if
all of them have. The bound then holds at each level for siblings: see docs/fairness.md. It holds for any order
among clients with credit. A step therefore looks up a bounded number of matches that may have changed, and tries a
bounded number of requests that do not fit: its cost does not grow with the queue.

Algorithm 1's lines are here: CHECKREFILL, 3-8, in `DeficitOrder.next_leaf` and below; the monitoring stream, 11-13, in
`Dlpm.arrived`; the execution stream, 16-25, in `Dlpm.select`, and 27 in `Dlpm.generated`. Beside the algorithm stand
the indexes that find the longest match (`prefix_match_queue`), and the form that divides prompts (`sliced_dlpm`;
`sliced_vtc` with the order of VTC), which a worker runs over every engine whose steps it plans.
"""

from collections.abc import Iterable, Sequence

from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.accounts.service_ledger import Charging
from local_worker.core.accounts.tree import AccountTree
from local_worker.core.policies.prefix_match_queue import MissingBlockIndex, PrefixMatchQueue, RankKey
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.cost import MICRO, charge

# Number of admissions of the same client that may pass its earliest request, before that request goes first.
MAX_PASSED = 64
# Largest number of requests that a step tries and that do not fit.
MAX_MISFITS = 32
# Largest number of requests that a step looks up because their match may have changed.
MAX_REMATCHED = 16
# Before the keys of all requests: the next step of the order has to refill the siblings.
DRY: tuple[int, ...] = ()
# The keys of accounts in debt begin with DEBT and come after those of all requests: these are less than DEBTS.
DEBT = 1
DEBTS = (DEBT,)


class DlpmBounds:
    """The range of a balance and the gap between siblings in micro-units, for every weight that was seen: DLPM Theorems
    A.1 and 4.1 (docs/fairness.md)."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self.gap = self._gap()  # the bound on the gap; every step reports it

    def seen(self, weight: int) -> None:
        """Record that there is a request of `weight` (thousandths)."""
        config = self._config.seen(weight)
        if config is not self._config:
            self._config = config
            self.gap = self._gap()

    @property
    def most_debt(self) -> int:
        """U, the largest debt: the cost of one prompt, and of all output that memory holds."""
        return self._config.most_per_balance

    @property
    def balance_range(self) -> tuple[int, int]:
        """The range `(-U, Q]` of a balance; in slices it includes -U'."""
        return -self.most_debt, self._quantum

    def _gap(self) -> int:
        """The bound `2 (U + Q)` on the gap."""
        return 2 * (self.most_debt + self._quantum)

    @property
    def _quantum(self) -> int:
        return self._config.quantum_tokens * MICRO


class DeficitOrder:
    """The order in which accounts are served: those with credit by the best request below them, at each level.

    Among siblings with waiting requests, those in credit come first, by the best key below them, and then those in
    debt, by the round that gives them credit. An account in credit whose waiting requests are all held is not ranked.
    """

    def __init__(self, root: Siblings) -> None:
        self.queues: dict[Account, PrefixMatchQueue] = {}  # leaf -> its waiting requests
        self._root = root

    def rank(self, leaf: Account) -> None:
        """Rank `leaf` and those above it by their balances and their best requests."""
        for account in leaf.lineage:
            ranks, key = account.siblings.ranks, self._key(account)
            if key is None:
                ranks.discard(account.name)
            else:
                ranks.put(account.name, key)

    def rank_waiting(self, leaf: Account) -> None:
        """Rank those of the lineage that have waiting requests: the others are not ranked anyway."""
        if leaf.lineage[-1].hungry:
            self.rank(leaf)

    def _key(self, account: Account) -> tuple[int, ...] | None:
        if not account.hungry:
            return None
        credit_round = account.credit_round
        return (DEBT, credit_round) if credit_round > account.siblings.rounds else self._best(account)

    def _best(self, account: Account) -> tuple[int, ...] | None:
        """Return the least key of the requests below that may be admitted; DRY if a refill comes before them; None if
        none can go."""
        members = account.members
        if members is None:
            return self.queues[account].first_key()
        first = members.ranks.first()
        if first is not None and first[0] < DEBTS:
            return first[0]
        return DRY if _is_dry(members) else None

    def next_leaf(self) -> Account | None:
        """Return the leaf with the best request among those with credit on the whole path; None if there is none.

        Siblings on the way of whom none that waits has credit are refilled first (CHECKREFILL).
        """
        siblings = self._root
        while True:
            first = siblings.ranks.first()
            if first is not None and first[0] < DEBTS:
                account = siblings.members[first[1]]
                if account.members is None:
                    return account
                siblings = account.members
            elif _is_dry(siblings):
                self._refill(siblings)
                if siblings.parent is not None:
                    self.rank(siblings.parent)
                siblings = self._root
            else:
                return None

    def _refill(self, siblings: Siblings) -> None:
        """Apply lines 3-8 until a waiting account has credit: as many rounds as the smallest debt needs.

        The siblings must be dry. Dry ones below those that have credit now are refilled, too: the order would lead to
        each of them before any request.
        """
        (_, siblings.rounds), names = siblings.ranks.take_least()
        for name in names:
            account = siblings.members[name]
            if account.members is not None and _is_dry(account.members):
                self._refill(account.members)
            key = self._key(account)
            if key is not None:
                siblings.ranks.put(name, key)

    def check_rank(self, account: Account) -> None:
        """Raise AssertionError unless an account is ranked as its balance and its best request say."""
        siblings, key = account.siblings, self._best(account) if account.hungry else None
        if account.hungry and (balance := account.balance) <= 0:
            key = DEBT, siblings.rounds + siblings.rounds_needed(balance)
        found = siblings.ranks.key(account.name)
        assert found == key, f"{account.name}: ranked by {found} in place of {key}"


def _is_dry(siblings: Siblings) -> bool:
    """Return whether siblings wait and all of them are in debt (CHECKREFILL); one whose requests are all held has
    credit, and no rank."""
    first = siblings.ranks.first()
    return first is not None and first[0] > DEBTS and len(siblings.ranks) == siblings.hungry


class Dlpm:
    """DLPM, where `balance` is the deficit counter q_i, in `balance_range_micro`; it is 0 for a client never charged.

    `strict_paper` leaves out the additions to the paper: promotion, charges for reserved room, and waiting for a prefix
    that another request computes. See QueuePolicy.
    """

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._bounds = DlpmBounds(config)
        self._strict = config.strict_paper
        self.accounts = AccountTree(config.levels, config.most_idle, config.quantum_tokens * MICRO)
        self._order = DeficitOrder(self.accounts.root)
        self._block_tokens = config.block_tokens
        self._missing = MissingBlockIndex(config.block_tokens)

    @property
    def bound_micro(self) -> int:
        """The bound of Theorem 4.1 in micro-units; see QueuePolicy."""
        return self._bounds.gap

    @property
    def balance_range_micro(self) -> tuple[int, int] | None:
        """The range of a balance (Theorem A.1) in micro-units; see QueuePolicy."""
        return self._bounds.balance_range

    @property
    def waiting(self) -> int:
        return len(self._missing)

    def arrived(self, request: Request) -> None:
        """Queue `request` as lines 11-13 do; see QueuePolicy."""
        self._bounds.seen(self.accounts.levels.least_weight(request))
        matched = request.matched_blocks * self._block_tokens
        leaf, queues = request.account, self._order.queues
        if leaf not in queues:
            queues[leaf] = PrefixMatchQueue(None if self._strict else MAX_PASSED)
        queues[leaf].add(request, self._key(request, matched))
        self._missing.arrived(request, matched)
        self._order.rank(leaf)

    def preempted(self, request: Request) -> None:
        Dlpm.arrived(self, request)

    def withdrawn(self, request: Request) -> None:
        """Remove `request` from the queue; see QueuePolicy."""
        self._queue(request).remove(request)
        self._missing.left(request)
        self._leave_queue(request)

    def _leave_queue(self, request: Request) -> None:
        """Rank the account of `request`, which has left its queue."""
        if not self._queue(request):
            del self._order.queues[request.account]
        self._order.rank(request.account)

    def _queue(self, request: Request) -> PrefixMatchQueue:
        return self._order.queues[request.account]

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a request of the account deepest in debt, at the highest level first; see QueuePolicy."""
        return min(running, key=depth)

    def cached(self, digests: Sequence[int]) -> None:
        self._missing.cached(digests)

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit requests as lines 16-25 do; see QueuePolicy."""
        self._rematch_changed(budget)
        admitted: list[Request] = []
        held: list[Request] = []  # left out until the end of the step; other requests of their clients may enter
        rematches = MAX_REMATCHED
        while len(held) < MAX_MISFITS and (candidate := self._next()) is not None:
            if rematches and self._rematch(candidate, budget):
                rematches -= 1
            elif not self._strict and budget.awaits_prefix(candidate):
                self._hold(candidate, held)
            elif (tokens := budget.admit(candidate)) is not None:
                self._admit(candidate, tokens, budget)
                admitted.append(candidate)
            elif budget.closed:
                break
            else:
                self._hold(candidate, held)
        self._release(held)
        return admitted

    def _rematch_changed(self, budget: StepBudget) -> None:
        moved = [request for request in self._missing.take(MAX_REMATCHED) if self._move(request, budget)]
        self._rank_once(request.account for request in moved)

    def _hold(self, request: Request, held: list[Request]) -> None:
        held.append(request)
        self._queue(request).hold(request)
        self._order.rank(request.account)

    def _release(self, held: Sequence[Request]) -> None:
        leaves = dict.fromkeys(request.account for request in held)
        for leaf in leaves:
            self._order.queues[leaf].release()
        self._rank_once(leaves)

    def _rank_once(self, leaves: Iterable[Account]) -> None:
        for leaf in dict.fromkeys(leaves):
            self._order.rank(leaf)

    def _next(self) -> Request | None:
        """Return the best request of accounts with credit; refill first where none that waits has any (CHECKREFILL)."""
        leaf = self._order.next_leaf()
        return None if leaf is None else self._order.queues[leaf].next()

    def _admit(self, request: Request, tokens: int, budget: StepBudget) -> None:
        self._queue(request).admitted(request)
        self._missing.left(request)
        self._charge(request, self._charging.extend(request, tokens))
        self._reserve(request, budget)
        self._leave_queue(request)

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Charge for room beyond the client's share when it is taken."""
        if not self._strict and (ahead := budget.reserve(request)):
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _rematch(self, request: Request, budget: StepBudget) -> bool:
        """Look up the match of `request`; return whether its place in the order has changed."""
        is_moved = self._move(request, budget)
        if is_moved:
            self._order.rank(request.account)
        return is_moved

    def _move(self, request: Request, budget: StepBudget) -> bool:
        """Look up the match of `request`; return whether its place among those of its account has changed."""
        queue, matched = self._queue(request), budget.matched_tokens(request)
        self._missing.place(request, matched)
        key = self._key(request, matched)
        if queue.key(request) == key:
            return False
        queue.move(request, key)
        return True

    def _key(self, request: Request, matched: int) -> RankKey:
        return -matched, request.arrival

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens (line 27), the first one included; see QueuePolicy."""
        if self._charge(request, self._charging.due(request, tokens)):
            self._order.rank_waiting(request.account)

    def deferred(self, request: Request) -> None:
        if self._charge(request, self._charging.next_output(request)):
            self._order.rank_waiting(request.account)

    def _charge(self, request: Request, micro: int) -> bool:
        """Charge the accounts of the path over their weights; return whether one has no credit now."""
        is_dry = False
        highest = charge(micro, request.weight)
        below = highest if request.user_weight == request.weight else charge(micro, request.user_weight)
        for account in request.account.lineage:
            is_dry |= account.charge(highest if account.is_highest else below) <= 0
        return is_dry

    def finished(self, request: Request) -> None:
        """Do nothing: a deficit stays until refills pay it. See QueuePolicy."""

    def balance(self, client: str) -> int:
        """Return q_i in micro-units; see QueuePolicy."""
        return self.accounts.balance(self.accounts.levels.client_path(client))

    def check_invariants(self) -> None:
        """Raise AssertionError when a balance exceeds its range, or when a hungry account is not ranked as its balance
        says."""
        most = self._bounds.balance_range[1]
        for account in self.accounts:
            assert account.balance <= most, f"{account.name}: balance {account.balance} above {most}"
            self._order.check_rank(account)
            in_queue = len(self._order.queues.get(account, ()))
            hungry = (account.members is None and account.hungry) or 0
            assert hungry == in_queue, f"{account.name}: {hungry} requests are hungry, {in_queue} in queue"
        self._missing.check_invariants(self._waiting_requests())

    def _waiting_requests(self) -> list[Request]:
        return [request for queue in self._order.queues.values() for request in queue.requests()]


def depth(request: Request) -> tuple[list[int], int]:
    """Return a key that is least for the latest request of the account deepest in debt, at the highest level first."""
    return [account.balance for account in reversed(request.account.lineage)], -request.arrival

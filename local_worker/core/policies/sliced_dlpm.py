"""DLPM whose unit is the slice: the next part of a prompt, or one output token. Unit of fairness: as DLPM.

Algorithm 1 decides about whole requests: a prompt is charged when it enters, and its request keeps its place until it
ends. Its bound therefore contains the longest prompt and all of memory. Here an account has a turn only until its
balance is spent, and a request whose account is more than P in debt gives way to one with credit. The bound is
2 (U' + Q), where U' contains neither: see docs/fairness.md, "Fair slices", with the proof.

A request is hungry while it waits or is open: it runs, and has a part of its prompt that no step was given. Open
requests stay in their accounts' queues, and what is planned of them counts as their match. The order, the refills and
the charges are those of `dlpm`; the division of a step into turns is in `turns`.
"""

from collections.abc import Iterable, Iterator

from local_worker.core.accounts.account import Account
from local_worker.core.policies.dlpm import MAX_REMATCHED, Dlpm, DlpmBounds
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.cost import WEIGHT_ONE


class SliceBounds(DlpmBounds):
    """The bounds of fair slices: U' in place of U, and both once a preemption was forbidden."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._is_wide = False
        super().__init__(config)

    def widen(self) -> None:
        """Record that a request had to wait for others, far in debt, to end."""
        if not self._is_wide:
            self._is_wide = True
            self.gap = self._gap()

    @property
    def most_debt(self) -> int:
        """U': P, a block of a prompt, and what steps generate before it is charged.

        It contains neither the length of a prompt nor the size of memory. Where no request gives way for its client's
        debt (P = 0), it is U and a block.
        """
        config = self._config
        if not config.most_debt:
            return config.most_block + config.most_per_balance
        debt = config.most_debt + config.most_block + config.most_uncharged
        return debt + config.most_per_balance if self._is_wide else debt


class SlicedDlpm(Dlpm):
    """DLPM over slices; see Dlpm and QueuePolicy."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._bounds: SliceBounds = SliceBounds(config)
        self._debt = config.most_debt  # P
        self._held: list[Request] = []  # left out until the end of the step
        self._rematches = 0  # number of requests that the step may still look up again
        self.open: dict[Request, None] = {}

    @property
    def has_preemption(self) -> bool:
        """Whether requests give way to others."""
        return self._debt > 0

    def preemption_deferred(self) -> None:
        """Record that a request of an account with credit had to wait for others, far in debt, to end."""
        self._bounds.widen()

    # --- the queue ---

    def arrived(self, request: Request) -> None:
        """Queue `request`; see QueuePolicy."""
        self._join(request)
        super().arrived(request)

    def _join(self, request: Request) -> None:
        """Forgive the debts of siblings of whom none was hungry: nobody was wronged by them."""
        for account in request.account.lineage:
            if account.hungry == 1 and account.siblings.hungry == 1:
                account.siblings.forgive()

    def preempted(self, request: Request) -> None:
        if request in self.open:
            del self.open[request]
            self._queue(request).remove(request)
        super().preempted(request)

    def finished(self, request: Request) -> None:
        self._close(request)

    def entered(self, request: Request, budget: StepBudget) -> None:
        """Record that `request` has entered the batch and is open; charge for its room. Its account is ranked when the
        request is `planned` or put on `hold` next."""
        self._missing.left(request)
        self._queue(request).opened(request, self._key(request, request.computed))
        self.open[request] = None
        self._reserve(request, budget)

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Charge for room beyond the client's share, as far as P: whoever takes more gives way."""
        most = None
        if self._debt:
            price = self._charging.output(request, request.sampling.max_tokens - 1, request.sampling.max_tokens)
            most = max(0, self._least(request, self._debt)) // (WEIGHT_ONE * max(1, price))
        if ahead := budget.reserve(request, most):
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def planned(self, request: Request, stop: int, payer: Request, micro: int) -> None:
        """Record that a step was given the tokens of an open `request` before `stop`, in the name of `payer`, whose
        accounts are charged for them."""
        self._charge(payer, micro)
        if payer is not request:
            self._order.rank(payer.account)
        if stop < request.due:
            self._queue(request).move(request, self._key(request, stop))
            self._order.rank(request.account)
        else:
            self.accounts.planned(request)
            self._close(request)

    def _close(self, request: Request) -> None:
        """Remove `request` from its queue if it is open."""
        if request in self.open:
            del self.open[request]
            self._queue(request).remove(request)
            self._leave_queue(request)

    # --- turns ---

    def begin_step(self, budget: StepBudget) -> None:
        """Look up a bounded number of requests whose match may have grown since the last step."""
        self._rematch_changed(budget)
        self._rematches = MAX_REMATCHED

    def next(self, budget: StepBudget) -> Request | None:
        """Return the best hungry request of accounts with credit; None if there is none. Refill first where no hungry
        one has credit (CHECKREFILL)."""
        while (request := self._next()) is not None:
            if request in self.open or not self._rematches or not self._rematch(request, budget):
                return request
            self._rematches -= 1
        return None

    def hold(self, request: Request) -> None:
        """Leave `request` out of the order until `release`; other requests of its account may go."""
        self._hold(request, self._held)

    def hold_all(self, request: Request) -> None:
        """Leave all hungry requests of the account of `request` out of the order until `release`."""
        self._held.append(request)
        self._queue(request).hold_all()
        self._order.rank(request.account)

    def release(self) -> None:
        """Put all that were held back into the order."""
        held, self._held = self._held, []
        self._release([request for request in held if request.account in self._order.queues])

    def has_credit(self, request: Request) -> bool:
        return all(account.balance > 0 for account in request.account.lineage)

    def owes(self, account: Account) -> bool:
        return account.balance <= 0

    def beyond(self, leaves: Iterable[Account]) -> set[Account]:
        """Return those of `leaves` of whose lineages an account is at least P in debt; none, if there is no P."""
        if not self._debt:
            return set()
        accounts = {account for leaf in leaves for account in leaf.lineage}
        deep = {account for account in accounts if account.is_at_most(-self._debt)}
        return {leaf for leaf in leaves if not deep.isdisjoint(leaf.lineage)} if deep else deep

    def tokens_until_dry(self, request: Request) -> int:
        """Return the number of prompt tokens after which an account of `request` has no credit; at most 0 if it has
        none."""
        return self._tokens_until(request, 0)

    def tokens_until_beyond(self, request: Request) -> int:
        """Return the number of prompt tokens after which an account of `request` is P in debt."""
        return self._tokens_until(request, self._debt)

    def _tokens_until(self, request: Request, debt: int) -> int:
        return -(-self._least(request, debt) // (WEIGHT_ONE * self._charging.most_per_token))

    def _least(self, request: Request, debt: int) -> int:
        """Return what can be charged to `request` until an account of its path owes `debt`, in micro-units times
        WEIGHT_ONE."""
        return min(
            [
                (account.balance + debt) * (request.weight if account.is_highest else request.user_weight)
                for account in request.account.lineage
            ]
        )

    def can_finish(self, request: Request, running: Iterable[Request]) -> bool:
        """Return whether `request`, which waits, and those of its account among `running` can be charged for until they
        end before an account of its path is P in debt."""
        micro = self._unpaid(request, request.matched_blocks * self._block_tokens)
        if request.account.running:
            micro += sum([self._unpaid(other, other.computed) for other in running if other.account is request.account])
        return micro * WEIGHT_ONE <= self._least(request, self._debt)

    def _unpaid(self, request: Request, computed: int) -> int:
        """Return the most that can still be charged for `request`, of whose tokens so many are `computed`."""
        paid = max(request.reserved, request.output_tokens)
        output = self._charging.output(request, paid, request.sampling.max_tokens)
        return output + self._charging.again(max(0, len(request.tokens) - computed))

    def open_by_balance(self) -> list[Request]:
        """Return the open requests, those of the account with the least debt first."""
        return sorted(self.open, key=lambda request: (-request.account.balance, request.arrival))

    def hungry_leaves(self) -> Iterator[Account]:
        """Iterate over the accounts at the end of paths that have hungry requests."""
        return iter(self._order.queues)

    def first_waiting(self, leaf: Account) -> Request | None:
        """Return the request of `leaf` that goes first, if it waits and is not held."""
        queue = self._order.queues[leaf]
        request = None if queue.first_key() is None else queue.next()
        return None if request is None or request in self.open else request

    def check_invariants(self) -> None:
        super().check_invariants()
        for request in self.open:
            assert self.accounts.is_open(request), f"{request.id} is open, and its accounts do not know it"

    def _waiting_requests(self) -> list[Request]:
        return [request for request in super()._waiting_requests() if request not in self.open]

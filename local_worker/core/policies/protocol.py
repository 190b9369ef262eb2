"""The interface of a queue policy, which decides the waiting requests that enter the running batch.

A policy reads and charges the balances of accounts. Every method is synchronous and deterministic. Names follow the
papers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from local_worker.core.accounts.tree import FLAT, AccountTree, ClassedAccounts, FairnessLevels
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.cost import MICRO, WEIGHT_ONE, Cost, charge


class StepBudget(Protocol):
    """The room left in the step that is being planned; a policy uses it during `select`."""

    @property
    def closed(self) -> bool:
        """Whether no further request can enter in this step."""

    def matched_tokens(self, request: Request) -> int:
        """Return the number of `request`'s prompt tokens that are cached now, without admitting it."""

    def awaits_prefix(self, request: Request) -> bool:
        """Return whether `request` had better wait: a running request is computing the next block of its prefix, and
        this step has room."""

    def admit(self, request: Request) -> int | None:
        """Admit `request` and return the number of tokens to charge for; return None and change nothing if it does not
        fit."""

    def reserve(self, request: Request, most: int | None = None) -> range:
        """Return the output tokens to charge ahead: those for which `request` has room beyond its client's share, at
        most `most`, if that is given.

        This holds for a running request, and for a waiting one as if it entered now. From this call on the tokens count
        as service once, whether or not they are generated.
        """


class QueuePolicy(Protocol):
    """The rule for the order of admission, with its state. A request waits from `arrived` until it is selected or
    `withdrawn`."""

    @property
    def accounts(self) -> AccountTree:
        """The accounts that the policy charges, at the levels at which it is fair. Only DLPM has several levels.

        The tree is told of each event of a request before the policy is.
        """

    @property
    def bound_micro(self) -> int | None:
        """The largest difference of service between two continuously backlogged clients, in micro-units; None: no
        bound. With several levels it holds for siblings of each level."""

    @property
    def balance_range_micro(self) -> tuple[int, int] | None:
        """The lowest and the highest possible balance of a client, in micro-units; None: no range is proved."""

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""

    def arrived(self, request: Request) -> None:
        """Queue `request`; its `matched_blocks` is up to date."""

    def withdrawn(self, request: Request) -> None:
        """Remove `request`, which was not selected, from the queue and from its client's backlog."""

    def preempted(self, request: Request) -> None:
        """Queue a running `request` again in its old place. This is no arrival: the client's account is not lifted."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Return the request to preempt out of `running`, which is not empty: the latest of the client with the least
        claim."""

    def cached(self, digests: Sequence[int]) -> None:
        """Record the blocks that became available in the prefix cache since the last call."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit the requests that fit, in the policy's order; remove them from the queue, charge for their prompts,
        return them."""

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for the last `tokens` output tokens of a running request."""

    def deferred(self, request: Request) -> None:
        """Charge a running request for a step in which it took a place without a token, as for one token."""

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch for any reason but a preemption."""

    def balance(self, client: str) -> int:
        """Return the client's account in micro-units: a deficit (a higher value is served earlier) or a virtual
        counter."""

    def check_invariants(self) -> None:
        """Raise AssertionError when the state violates an invariant of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicyConfig:
    """The parameters with which a policy is built."""

    quantum_tokens: int  # Q^u in cost units
    cost: Cost
    max_input_tokens: int  # L_input
    max_output_tokens: int  # L_output
    # Largest number of tokens that the requests admitted on one positive balance can generate. Under reserve admission
    # it is M, the tokens that fit in a running batch; under optimistic admission, which reuses memory, n_max L_output.
    most_output_tokens: int
    block_tokens: int
    strict_paper: bool = False  # whether policies leave out this project's additions to the papers
    least_weight: int = WEIGHT_ONE  # thousandths: the smallest weight for which the bounds are stated
    most_idle: int = MOST_IDLE  # number of clients (of each level) without requests that keep their accounts
    levels: FairnessLevels = FLAT  # only DLPM has several
    # P in cost units, of fair slices only (see `most_debt`); 0: no request is preempted for its client's debt.
    most_debt_tokens: int = 0
    # Largest number of output tokens that steps generate before their charge is known, of fair slices only.
    most_uncharged_tokens: int = 0

    def seen(self, weight: int) -> "QueuePolicyConfig":
        """Return a configuration whose bounds also hold for requests of `weight` (thousandths)."""
        return self if weight >= self.least_weight else replace(self, least_weight=weight)

    @property
    def most_extend(self) -> int:
        """`w_e L_input`, the highest cost of one prompt, in micro-units."""
        longest = self.max_input_tokens
        return charge(max(self.cost.extend(longest, 0), self.cost.extend(longest, longest)), self.least_weight)

    @property
    def most_decode(self) -> int:
        """`w_q M`, the highest cost of the output that one positive balance admits, in micro-units.

        The cost per output token is highest for the longest output.
        """
        return charge(-(-self._longest * self.most_output_tokens // self.max_output_tokens), self.least_weight)

    @property
    def most_debt(self) -> int:
        """P in micro-units: no more than the cost of the output that memory holds, which bounds debts without it."""
        all_output = -(-self._longest * self.most_output_tokens // self.max_output_tokens)
        return min(self.most_debt_tokens * MICRO, all_output)

    @property
    def most_block(self) -> int:
        """The highest cost of one block of a prompt, in micro-units."""
        block = self.block_tokens
        return charge(max(self.cost.extend(block, 0), self.cost.extend(block, block)), self.least_weight)

    @property
    def most_uncharged(self) -> int:
        """The highest cost of what steps generate before their charge is known, in micro-units."""
        return charge(-(-self._longest * self.most_uncharged_tokens // self.max_output_tokens), self.least_weight)

    @property
    def _longest(self) -> int:
        return self.cost.decode(self.max_output_tokens, self.max_input_tokens, 0)

    @property
    def most_per_balance(self) -> int:
        """U of DLPM section 4.2, `w_e L_input + w_q M` under reserve admission, in micro-units."""
        return self.most_extend + self.most_decode


class ClassedPolicy:
    """Two policies of one kind, `interactive` and `background`, each with its bounds, as if there were no other class.

    The class stands above all levels of fairness: a background request is admitted only while no interactive one waits.
    What is asked of both is asked here, see QueuePolicy; the policy of its class is told of a request's events.
    """

    def __init__(self, make: Callable[[QueuePolicyConfig], QueuePolicy], config: QueuePolicyConfig) -> None:
        self.interactive = make(config)
        self.background = make(config)
        self.accounts = ClassedAccounts(self.interactive.accounts, self.background.accounts)

    @property
    def bound_micro(self) -> int | None:
        """The bound among interactive requests; see QueuePolicy."""
        return self.interactive.bound_micro

    @property
    def balance_range_micro(self) -> tuple[int, int] | None:
        """The range of balances of interactive requests; see QueuePolicy."""
        return self.interactive.balance_range_micro

    @property
    def waiting(self) -> int:
        return self.interactive.waiting + self.background.waiting

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a background request, if one runs; see QueuePolicy."""
        if lower := [request for request in running if request.background]:
            return self.background.victim(lower)
        return self.interactive.victim(running)

    def cached(self, digests: Sequence[int]) -> None:
        self.interactive.cached(digests)
        self.background.cached(digests)

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit interactive requests, and background ones if no interactive one is left; see QueuePolicy."""
        admitted = self.interactive.select(budget) if self.interactive.waiting else []
        if self.background.waiting and not self.interactive.waiting and not budget.closed:
            admitted += self.background.select(budget)
        return admitted

    def balance(self, client: str) -> int:
        """Return the account of the client's interactive requests; see QueuePolicy."""
        return self.interactive.balance(client)

    def check_invariants(self) -> None:
        self.interactive.check_invariants()
        self.background.check_invariants()

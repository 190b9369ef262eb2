"""What a queue policy is: it decides who of the waiting enters the running batch, and keeps its own accounts.

Every method is synchronous and deterministic. Names follow the papers' streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.cost import WEIGHT_ONE, Cost, charge


class StepBudget(Protocol):
    """The room there is: asked and used by a policy during `select`."""

    @property
    def closed(self) -> bool:
        """Nobody else can enter in this step, whatever is asked."""

    def matched_tokens(self, request: Request) -> int:
        """Prompt tokens that the cache holds now; changes nothing."""

    def admit(self, request: Request) -> int | None:
        """Take room; returns the tokens to charge for, or None, changing nothing, if it does not fit."""

    def reserve(self, request: Request) -> range:
        """Output tokens to be charged ahead: those for which `request`, as it runs or as it would enter now, has room
        beyond its client's share. They count as given from now on, once, whether or not they will be generated.
        """


class QueuePolicy(Protocol):
    """One policy, with its state. A request is waiting from `arrived` until it is selected or `withdrawn`."""

    @property
    def bound_micro(self) -> int | None:
        """The most that two continuously backlogged clients' service may differ; None: the policy promises nothing."""

    @property
    def balance_range_micro(self) -> tuple[int, int] | None:
        """Within which every client's balance stays, both ends included; None: the policy promises no such thing."""

    @property
    def waiting(self) -> int:
        """Requests in the queue."""

    @property
    def remembered(self) -> int:
        """Clients that have an account: those with requests, and at most `QueuePolicyConfig.most_idle` of the others.

        A client that was forgotten and comes back is no better off than if it had not been: the account that it gets
        is never more favourable than the one it had.
        """

    def arrived(self, request: Request) -> None:
        """`request` joins the queue; its `matched` is up to date."""

    def withdrawn(self, request: Request) -> None:
        """`request` leaves the queue without having been selected; at once, also for everybody's backlog.

        What it has prepaid its client forfeits, and has had in place of service.
        """

    def preempted(self, request: Request) -> None:
        """A running `request` is waiting again, in its old place; it has not arrived, and nobody is to be lifted."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Which of `running`, at least one, is to be preempted: of those with the least due to them, the latest."""

    def cached(self, digests: Sequence[int]) -> None:
        """These blocks have become available in the prefix cache since the last call."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit in the policy's order what fits; those have left the queue and their extend cost is charged."""

    def generated(self, request: Request, tokens: int) -> None:
        """Charge output tokens of a running request."""

    def finished(self, request: Request) -> None:
        """`request` left the running batch, for whatever reason."""

    def balance(self, client: str) -> int:
        """The client's account, in micro-units: a deficit (larger = more is due) or a virtual counter."""

    def check_invariants(self) -> None:
        """Raise AssertionError when the state breaks a promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicyConfig:
    """What policies are built from."""

    quantum_tokens: int  # Q^u in cost units
    cost: Cost
    max_input_tokens: int  # L_input
    max_output_tokens: int  # L_output
    # What the requests that are admitted on one positive balance can still generate. Under reserve admission M, the
    # tokens that fit in a running batch; under optimistic admission memory is used more than once: n_max L_output.
    most_output_tokens: int
    block_tokens: int
    strict_paper: bool = False  # as printed, without what this project adds
    least_weight: int = WEIGHT_ONE  # thousandths: the smallest weight for which the bounds are stated
    most_idle: int = MOST_IDLE  # clients without requests that keep their accounts

    def seen(self, weight: int) -> "QueuePolicyConfig":
        """With bounds that hold for a request of `weight`, too."""
        return self if weight >= self.least_weight else replace(self, least_weight=weight)

    @property
    def most_extend(self) -> int:
        """`w_e L_input`: the most that one prompt costs, micro-units."""
        longest = self.max_input_tokens
        return charge(max(self.cost.extend(longest, 0), self.cost.extend(longest, longest)), self.least_weight)

    @property
    def most_decode(self) -> int:
        """`w_q M`: the most that the output of one positive balance costs, micro-units.

        An output costs most per token when it is longest.
        """
        return charge(-(-self._longest * self.most_output_tokens // self.max_output_tokens), self.least_weight)

    @property
    def most_output(self) -> int:
        """`w_q L_output`: the most that one output costs, micro-units."""
        return charge(self._longest, self.least_weight)

    @property
    def _longest(self) -> int:
        return self.cost.decode(self.max_output_tokens, self.max_input_tokens, 0)

    @property
    def most_per_balance(self) -> int:
        """U of DLPM section 4.2, `w_e L_input + w_q M` under reserve admission, micro-units."""
        return self.most_extend + self.most_decode

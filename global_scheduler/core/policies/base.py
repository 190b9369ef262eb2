"""What every global policy is: a choice among candidates, and accounts that follow it."""

from dataclasses import dataclass
from typing import Protocol

from global_scheduler.core.outstanding_table import OutstandingTable
from serving.cost import Cost


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One attempt to place a request. `digests` packed, `weight` in thousandths (serving.cost)."""

    request_id: str
    attempt: int
    client: str
    model: str
    digests: bytes
    prompt_tokens: int
    weight: int
    excluded: tuple[str, ...] = ()
    revision: str = ""  # of the model: what its digests are of


@dataclass(frozen=True, slots=True)
class RoutePolicyConfig:
    """Parameters of a policy; `quantum_tokens` is Q^w, in cost units."""

    quantum_tokens: int
    cost: Cost
    strict_paper: bool = False  # DoubleQ as printed: a longest match is never left because of its queue


@dataclass(slots=True)
class Candidates:
    """The workers among which a policy chooses. Sets of workers are bitmasks by slot."""

    candidates: int  # not empty
    longest: int  # those of them with the longest match
    matched_tokens: int
    waiting: int  # workers whose latest report has waiting requests
    queues: OutstandingTable


class RoutePolicy(Protocol):
    """A routing policy with its accounts. It reads the outstanding requests, which only the dispatcher changes."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Choose a slot for `request` and charge the client for it."""

    def follow(self, request: RouteRequest, slot: int, candidates: int) -> None:
        """Update the accounts as `select` does, for a request that another process placed at `slot`."""

    def ended(self, request: RouteRequest, slot: int, output_tokens: int) -> None:
        """Charge the output of a request that started at `slot` and has ended."""

    def refunded(self, request: RouteRequest, slot: int) -> None:
        """Give back the charge of a request that never started at `slot`."""

    def forget(self, slot: int) -> None:
        """Drop the accounts of the worker at `slot`, which was lost."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

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
    """What policies are built from; `quantum_tokens` is Q^w, in cost units."""

    quantum_tokens: int
    cost: Cost
    strict_paper: bool = False  # DoubleQ as printed, whatever queues where its prefix is


@dataclass(slots=True)
class Candidates:
    """Among whom to choose. Sets of workers are bitmasks by slot."""

    candidates: int  # not empty
    longest: int  # those of them with the longest match
    matched_tokens: int
    waiting: int  # workers that have requests waiting, by their last word
    queues: OutstandingTable


class RoutePolicy(Protocol):
    """A policy reads queues but never writes them: the dispatcher books."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Choose a slot, and charge for it."""

    def follow(self, request: RouteRequest, slot: int, candidates: int) -> None:
        """Somebody else chose `slot` among `candidates`: what `select` does to the accounts."""

    def ended(self, request: RouteRequest, slot: int, output_tokens: int) -> None:
        """The request started at `slot` and has ended."""

    def refunded(self, request: RouteRequest, slot: int) -> None:
        """The request never started at `slot`."""

    def forget(self, slot: int) -> None:
        """The worker is gone."""

    def check_invariants(self) -> None:
        """Raises AssertionError."""

"""What every global policy is: a choice among candidates, and accounts that follow it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.cost import Cost
from global_scheduler.core.fleet import Member


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt to place a request. `weight` in thousandths (fairlead.cost)."""

    request_id: str
    attempt: int
    client: str
    model: str
    digests: tuple[int, ...]
    prompt_tokens: int
    weight: int
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What policies are built from; `quantum_tokens` is Q^w, in cost units."""

    quantum_tokens: int
    cost: Cost


class Policy(Protocol):
    """A policy reads `Member.outstanding` but never writes it: the dispatcher counts."""

    def select(self, request: Request, candidates: Sequence[Member], longest: int) -> Member:
        """Choose and charge. `candidates`: not empty, by slot; `longest`: mask of those with the longest match."""

    def ended(self, request: Request, slot: int, output_tokens: int) -> None:
        """The request started at `slot` and has ended."""

    def refunded(self, request: Request, slot: int) -> None:
        """The request never started at `slot`."""

    def forget(self, slot: int) -> None:
        """The worker is gone."""

    def check_invariants(self) -> None:
        """Raises AssertionError."""


def least_outstanding(members: Sequence[Member]) -> Member:
    """`argmin s_w`; the lower slot where equal."""
    return min(members, key=lambda m: (m.outstanding, m.slot))

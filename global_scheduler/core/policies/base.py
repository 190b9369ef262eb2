"""What every global policy is: a choice among candidates, and accounts that follow it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from global_scheduler.core.fleet import OutstandingTable
from serving.bounded_client_map import MOST_IDLE
from serving.cost import Cost


@dataclass(slots=True)
class RouteRequest:
    """One attempt to place a request. `digests` packed, `weight` in thousandths (serving.cost).

    It never changes. It is not frozen, because a frozen dataclass takes five times as long to make.
    """

    request_id: str
    attempt: int
    client: str
    model: str
    digests: bytes
    prompt_tokens: int
    weight: int
    excluded: Collection[str] = ()
    revision: str = ""  # of the model: what its digests are of
    background: bool = False  # it takes only what no interactive request wants


@dataclass(frozen=True, slots=True)
class RoutePolicyConfig:
    """Parameters of a policy; `quantum_tokens` is Q^w, in cost units."""

    quantum_tokens: int
    cost: Cost
    strict_paper: bool = False  # DoubleQ as printed: a longest match is never left because of its queue
    most_idle: int = MOST_IDLE  # number of accounts that are kept, one for each client and model


@dataclass(slots=True)
class Candidates:
    """The workers among which a policy chooses. Sets of workers are bitmasks by slot.

    `matches` are sets of workers, each within the one before, with the number of the prompt's blocks that all of the
    set cache: first all candidates, last those with the longest match. A worker's match is that of the last set with
    it. A block has `block_tokens` tokens.
    """

    matches: Sequence[tuple[int, int]]
    block_tokens: int
    waiting: int  # workers whose latest report has waiting requests
    queues: OutstandingTable

    @property
    def candidates(self) -> int:
        """All workers that may be chosen; never empty."""
        return self.matches[0][0]

    @property
    def longest(self) -> int:
        """The candidates with the longest match."""
        return self.matches[-1][0]

    @property
    def longest_tokens(self) -> int:
        """The length of the longest match, in tokens."""
        return self.matches[-1][1] * self.block_tokens

    def tokens_at(self, slot: int) -> int:
        """Return the match of the candidate at `slot`, in tokens."""
        for workers, blocks in reversed(self.matches):
            if workers >> slot & 1:
                return blocks * self.block_tokens
        raise ValueError(f"slot {slot} is no candidate")


class RoutePolicy(Protocol):
    """A routing policy with its accounts. It reads the outstanding requests, which only the dispatcher changes.

    `select` and `placed` follow each other for a request that this scheduler places. A request that another process
    placed is only `placed`, so that a standby has the accounts of the leader.
    """

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Choose a slot for `request`; charge nothing."""

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Charge the client for a request that goes to `slot`, where `matched_tokens` of its prompt are cached.

        Return the booked amount in micro-units, which the dispatcher keeps until the request ends.
        """

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        """Return what stays booked of a request at `slot` whose prompt is computed, of which the rest was cached.

        Called once for each request, with what `placed` was given and returned, before it ends or is refunded.
        """

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """Settle the booking of a request that started at `slot` and has ended."""

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """Give back what was booked for a request that never started at `slot`."""

    def forget(self, slot: int) -> None:
        """Drop the accounts of the worker at `slot`, which was lost, with all bookings there."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

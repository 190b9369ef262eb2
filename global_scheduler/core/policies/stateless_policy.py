"""The base of policies without accounts."""

from global_scheduler.core.policies.base import RouteRequest


class StatelessPolicy:
    """A policy that keeps no accounts: it books nothing, and its events change nothing."""

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Return 0, because nothing is booked; see RoutePolicy."""
        return 0

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """See RoutePolicy."""

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """See RoutePolicy."""

    def forget(self, slot: int) -> None:
        """See RoutePolicy."""

    def check_invariants(self) -> None:
        """See RoutePolicy."""

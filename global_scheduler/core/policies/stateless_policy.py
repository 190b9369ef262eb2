"""What policies without accounts share."""

from global_scheduler.core.policies.base import RouteRequest


class StatelessPolicy:
    """Nothing to follow, charge, refund or forget."""

    def follow(self, request: RouteRequest, slot: int, candidates: int) -> None:
        """See Policy."""

    def ended(self, request: RouteRequest, slot: int, output_tokens: int) -> None:
        """See Policy."""

    def refunded(self, request: RouteRequest, slot: int) -> None:
        """See Policy."""

    def forget(self, slot: int) -> None:
        """See Policy."""

    def check_invariants(self) -> None:
        """See Policy."""

"""The base of policies without accounts."""

from global_scheduler.core.policies.base import RouteRequest


class StatelessPolicy:
    """A policy that keeps no accounts: its events change nothing."""

    def follow(self, request: RouteRequest, slot: int, candidates: int) -> None:
        """See RoutePolicy."""

    def ended(self, request: RouteRequest, slot: int, output_tokens: int) -> None:
        """See RoutePolicy."""

    def refunded(self, request: RouteRequest, slot: int) -> None:
        """See RoutePolicy."""

    def forget(self, slot: int) -> None:
        """See RoutePolicy."""

    def check_invariants(self) -> None:
        """See RoutePolicy."""

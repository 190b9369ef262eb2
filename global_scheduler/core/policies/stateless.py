"""What policies without accounts share."""

from global_scheduler.core.policies.base import Request


class WithoutAccounts:
    """Nothing to follow, charge, refund or forget."""

    def follow(self, request: Request, slot: int, candidates: int) -> None:
        """See Policy."""

    def ended(self, request: Request, slot: int, output_tokens: int) -> None:
        """See Policy."""

    def refunded(self, request: Request, slot: int) -> None:
        """See Policy."""

    def forget(self, slot: int) -> None:
        """See Policy."""

    def check_invariants(self) -> None:
        """See Policy."""

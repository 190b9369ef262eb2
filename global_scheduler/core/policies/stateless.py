"""What policies without accounts share."""

from global_scheduler.core.policies.base import Request


class WithoutAccounts:
    """Nothing to charge, refund or forget."""

    def ended(self, request: Request, slot: int, output_tokens: int) -> None:
        """See Policy."""

    def refunded(self, request: Request, slot: int) -> None:
        """See Policy."""

    def forget(self, slot: int) -> None:
        """See Policy."""

    def check_invariants(self) -> None:
        """See Policy."""

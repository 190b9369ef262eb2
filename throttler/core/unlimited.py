"""No throttle: the baseline `none`."""

from throttler.core.throttle import Admitted, Decision


class Unlimited:
    """Admits every call; there is no state."""

    def admit(self, client: str, app: str, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle."""
        return Admitted(protected)

    def check_invariants(self) -> None:
        """See Throttle; nothing can be wrong."""

"""No throttle: the baseline `none`."""

from collections.abc import Sequence

from throttler.core.profiles import Profiles
from throttler.core.quota import LocalQuota, QuotaAccount
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Caller, Decision
from throttler.core.windows import SlidingWindow


class Unlimited:
    """A throttle that admits every call and counts no arrivals."""

    protects = False

    def __init__(self) -> None:
        self.window = SlidingWindow(WINDOW_SECONDS, LocalQuota())

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle."""
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        """See Throttle."""
        return False

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        """See Throttle; there are no limits."""
        return ()

    def refused(self, client: str, now: float) -> None:
        """See Throttle; nothing is counted."""

    def configure(self, profiles: Profiles) -> None:
        """See Throttle; there are no limits."""

    def check_invariants(self) -> None:
        """See Throttle; nothing is counted."""
        assert not len(self.window), f"{len(self.window)} accounts without a limit"

"""The throttles by name: interaction-driven, by requests per window alone, and none."""

from collections.abc import Callable, Sequence

from throttler.core.oit import Oit
from throttler.core.profiles import Profiles
from throttler.core.throttle import (
    WINDOW_SECONDS,
    Admitted,
    Caller,
    Decision,
    LimitedCalls,
    Rejected,
    ThrottleRule,
)
from throttler.core.windows import FixedWindow, LocalQuota, Quota, QuotaAccount, SlidingWindow, growable


class Rpm(LimitedCalls):
    """A throttle that limits the calls of each user, app and tenant in every minute of the clock. See ThrottleRule."""

    protects = False

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float = WINDOW_SECONDS) -> None:
        super().__init__(profiles, FixedWindow(seconds, quota))

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """See ThrottleRule; `overloaded` and `protected` change nothing."""
        limits = self._limits(caller)
        if lacking := growable(self.window, [limit.account for limit in limits], now):
            return lacking
        for limit in limits:
            if wait := self.window.arrived(limit.account, now):
                message = f"{limit.excess(caller)}; retry in {wait:.1f} s"
                return Rejected(limit.outcome, wait, message, limit.account.limit)
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        return True


class Unlimited:
    """A throttle that admits every call and counts no arrivals. See ThrottleRule."""

    protects = False

    def __init__(self) -> None:
        self.window = SlidingWindow(WINDOW_SECONDS, LocalQuota())

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        return False

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        """See ThrottleRule; there are no limits."""
        return ()

    def refused(self, client: str, now: float) -> None:
        """See ThrottleRule; nothing is counted."""

    def configure(self, profiles: Profiles) -> None:
        """See ThrottleRule; there are no limits."""

    def check_invariants(self) -> None:
        """See ThrottleRule; nothing is counted."""
        assert not len(self.window), f"{len(self.window)} accounts without a limit"


THROTTLES: dict[str, Callable[[Profiles, Quota, float], ThrottleRule]] = {
    "oit": Oit,
    "rpm": Rpm,
    "none": lambda profiles, quota, seconds: Unlimited(),
}

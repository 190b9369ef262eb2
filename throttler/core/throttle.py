"""The interface of throttles: the caller, the decision, and the methods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.windows import Window

WINDOW_SECONDS = 60.0


class Caller(NamedTuple):
    """The tenant, client and app of a call. `client` is the tenant or tenant/user; no `tenant` contains a '/'.

    `app` is empty while it is not known; then no limit of an app applies. `key` names the API key, if it is known.
    """

    tenant: str
    client: str
    app: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision that the call is admitted.

    `protected` means that it continues an interaction, and its client is within the cap on protected calls.
    """

    protected: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """The decision that the call is refused by the check `outcome`; `message` names the limit and its value."""

    outcome: Outcome
    retry_after: float  # seconds, > 0
    message: str
    limit: int  # the value of the limit that refuses the call


class LimitStatus(NamedTuple):
    """The rest of a limit: of `limit` calls or tokens in a window `remaining` at this gateway.

    `reset` are the seconds until all of them remain again, unless calls arrive before.
    """

    limit: int
    remaining: int
    reset: float


def tightest(statuses: Iterable[LimitStatus]) -> LimitStatus | None:
    """Return the status of the limit of which least remains, the first of several; None if there is no limit."""
    return min(statuses, key=lambda status: status.remaining, default=None)


# A QuotaAccount means that the call is neither decided nor counted yet. This limit would refuse it, but the other
# gateways may give more of the limit; after the request to them, `admit` is called again.
Decision = Admitted | Rejected | QuotaAccount


class ThrottleRule(Protocol):
    """A rule that decides once about each arriving call; `now` is in seconds and never decreases."""

    @property
    def window(self) -> Window:
        """The window that counts the arrivals."""

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Decide about a call, and count its arrival.

        `protected` means that the call continues an interaction in progress; `overloaded` that its model's pool is
        overloaded.
        """

    def enforces(self, overloaded: bool) -> bool:
        """Return whether limits refuse calls now; budgets of a minute or less follow this rule too."""

    @property
    def protects(self) -> bool:
        """Whether calls of interactions in progress go on beyond limits that are enforced."""

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        """Return the accounts in which the caller's calls count, the user's first; none where nothing limits them."""

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that was refused before `admit`; it counts only towards its user's limit."""

    def configure(self, profiles: Profiles) -> None:
        """Apply new limits from now on; counted arrivals stay counted."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

"""What every throttle answers, and the question."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.windows import Window

WINDOW_SECONDS = 60.0


class Caller(NamedTuple):
    """Whose call it is. `client` is the tenant or one of its users; no `tenant` holds a '/'."""

    tenant: str
    client: str
    app: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may go on; `protected` = it continues an interaction, and its client is within the cap on such calls."""

    protected: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """The call is refused: `outcome` says by which check, `message` names the limit and its value."""

    outcome: Outcome
    retry_after: float  # seconds, > 0
    message: str


# An Account: nothing is decided or counted yet. The call would be refused, but more of this limit may be had from the
# other gateways; when that has been asked for, the question is put again.
Decision = Admitted | Rejected | QuotaAccount


class Throttle(Protocol):
    """Decides once per arriving call; `now` in seconds, never decreasing."""

    @property
    def window(self) -> Window:
        """Where its arrivals are counted."""

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Decide, and count the arrival.

        `protected`: the call continues an interaction in progress. `overloaded`: the model's pool is.
        """

    def user_account(self, client: str) -> QuotaAccount | None:
        """Return what the client's calls are counted in; None where nothing limits them."""

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that something else refused before this was asked: towards its user alone."""

    def configure(self, profiles: Profiles) -> None:
        """Other limits from now on; what was counted stays counted."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

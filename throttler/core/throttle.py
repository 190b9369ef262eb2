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


Decision = Admitted | Rejected


class Throttle(Protocol):
    """Decides once per arriving call; `now` in seconds, never decreasing. Arguments as `admit` explains them."""

    @property
    def window(self) -> Window:
        """Where its arrivals are counted."""

    def lacks(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> QuotaAccount | None:
        """The account by which `admit` would refuse now, while more of its limit may be had by asking; counts nothing.

        None: there is nothing to wait for.
        """

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Count the arrival and decide.

        `protected`: the call continues an interaction in progress. `overloaded`: the model's pool is.
        """

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that something else refused before this was asked: towards its user alone."""

    def configure(self, profiles: Profiles) -> None:
        """Other limits from now on; what was counted stays counted."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

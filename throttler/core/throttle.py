"""What every throttle answers, and the question."""

from dataclasses import dataclass
from typing import Protocol

from fairlead.outcomes import Outcome

WINDOW_SECONDS = 60.0


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
    """Decides once per arriving call; `now` in seconds, never decreasing."""

    def admit(self, client: str, app: str, protected: bool, overloaded: bool, now: float) -> Decision:
        """Count the arrival and decide.

        `protected`: the call continues an interaction in progress. `overloaded`: the model's pool is.
        """

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""

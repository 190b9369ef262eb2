"""What was observed while the users called."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.flood.call import ObservedCall

RAMP_SECONDS = 5.0  # from the begin of the flood until waiting times and shares count


@dataclass(frozen=True, slots=True)
class Phase:
    """The calls of one phase, and the window in which they count, in seconds on the client's clock."""

    began: float
    ended: float
    calls: Sequence[ObservedCall]

    @property
    def seconds(self) -> float:
        """Return the length of the window in seconds."""
        return self.ended - self.began

    def asked_by(self, user: str) -> list[ObservedCall]:
        """Return the user's calls that were first sent in the window, whether or not they were answered."""
        return [call for call in self.calls if call.user == user and call.sent >= self.began]

    def answered(self) -> list[ObservedCall]:
        """Return the calls whose answers were complete in the window."""
        return [call for call in self.calls if call.done and call.tokens_at[-1] >= self.began]

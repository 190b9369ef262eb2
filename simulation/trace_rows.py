"""Requests as recorded in traces and logs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from simulation.prompts import LONGEST_RUN

LONGEST = LONGEST_RUN  # tokens of a prompt or an output


class PrefixBlocks(NamedTuple):
    """Consecutive prefix blocks of a prompt. Equal ids in equal scopes stand for equal tokens."""

    scope: str
    ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One recorded request; times are in seconds.

    `interaction` is empty for a single call. `think` is None where the thinking time was not recorded. `after` holds
    the positions, in the list of rows, of the requests whose answers this one waits for; thinking starts at the answer
    of the first of them. A row that is not `timed` has no recorded arrival: `arrival` counts from the start of its
    interaction.
    """

    arrival: float
    client: str
    app: str
    input_tokens: int
    output_tokens: int
    interaction: str = ""
    think: float | None = None
    after: tuple[int, ...] = ()
    blocks: tuple[PrefixBlocks, ...] = ()
    block_tokens: int = 0
    timed: bool = True

    @property
    def account(self) -> str:
        """The client, or if the row names none, the interaction or the app."""
        return self.client or self.interaction or self.app or "anonymous"

    def at(self, arrival: float) -> "TraceRow":
        """Return the same request with another arrival time; its thinking time does not change."""
        return replace(self, arrival=arrival)


class TraceContents(NamedTuple):
    """The requests in a file, and sentences that say which requests were left out."""

    rows: list[TraceRow]
    left_out: tuple[str, ...] = ()

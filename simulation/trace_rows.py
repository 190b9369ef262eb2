"""Requests as traces and logs record them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from simulation.prompts import LONGEST_RUN

LONGEST = LONGEST_RUN  # tokens of a prompt or an output


class PrefixBlocks(NamedTuple):
    """Prefix blocks that follow each other in a prompt. Equal ids in equal scopes stand for equal tokens."""

    scope: str
    ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request. `interaction` is empty for a single call; `think`, in seconds, is None where nobody recorded it.

    `after` are positions, in the list that the row is part of, of the requests whose answers it waits for; `think`
    begins with the answer of the first of them.
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

    @property
    def account(self) -> str:
        """Who is served: the client or, where none is named, the interaction or the app."""
        return self.client or self.interaction or self.app or "anonymous"

    def at(self, arrival: float) -> "TraceRow":
        """The same request at another time; thinking is not hurried."""
        return replace(self, arrival=arrival)


class TraceContents(NamedTuple):
    """What a file gave: its requests, and in sentences what was left out."""

    rows: list[TraceRow]
    left_out: tuple[str, ...] = ()

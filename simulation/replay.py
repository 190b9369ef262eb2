"""Recorded requests, sent again: what was shared is shared, and what followed an answer waits for it.

Calls of an interaction that follow one another are a closed loop: each comes `think` seconds after the one before was
answered. All others come at their times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from simulation.call import Call
from simulation.prompts import Segments
from simulation.workload import ClosedLoop

LONGEST_OUTPUT = 4095


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request. `blocks` are ids of prefix blocks in prompt order; `interaction` is empty for a single call."""

    arrival: float
    client: str
    app: str
    input_tokens: int
    output_tokens: int
    interaction: str = ""
    think: float = 0.0
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0

    def at(self, arrival: float) -> "Row":
        """The same request at another time; thinking is not hurried."""
        return replace(self, arrival=arrival)


class Replay:
    """A workload of rows: interactions with more than one call in closed loop, the others at their times."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._segments = Segments()
        self._shared: dict[tuple[str, int], list[int]] = {}  # content of (scope, block)
        self._loop = ClosedLoop()
        self._number = 0
        chains: dict[str, list[Row]] = {}
        for position, row in enumerate(rows):
            chains.setdefault(row.interaction or f"#{position}", []).append(row)
        self._chains = sorted(chains.values(), key=lambda chain: chain[0].arrival)

    def first(self) -> Iterator[Call]:
        """See Workload."""
        for chain in self._chains:
            yield self._loop.follow(self._call(chain, 0, chain[0].arrival), partial(self._follow, chain, 0))

    def ended(self, call: Call) -> Iterable[Call]:
        """See Workload."""
        return self._loop.ended(call)

    def _follow(self, chain: Sequence[Row], position: int, ended: Call) -> list[Call]:
        if position + 1 == len(chain):
            return []
        row = chain[position + 1]
        call = self._call(chain, position + 1, ended.arrival + ended.latency + row.think)
        return [self._loop.follow(call, partial(self._follow, chain, position + 1))]

    def _call(self, chain: Sequence[Row], position: int, arrival: float) -> Call:
        row = chain[position]
        self._number += 1
        return Call(
            number=self._number,
            client=row.client or row.interaction or row.app,
            app=row.app or "default",
            prompt=self._prompt(row),
            output_tokens=row.output_tokens,
            arrival=arrival,
            interaction=row.interaction,
            stage=position,
            last=position + 1 == len(chain),
        )

    def _prompt(self, row: Row) -> list[int]:
        """Shared blocks as far as the prompt reaches, then tokens of its own."""
        scope = row.app if row.app != "claude-code" else row.interaction  # its block ids are local to an interaction
        prompt: list[int] = []
        for block in row.blocks[: row.input_tokens // max(row.block_tokens, 1)]:
            key = scope, block
            if key not in self._shared:
                self._shared[key] = self._segments.fresh(row.block_tokens)
            prompt += self._shared[key]
        return prompt + self._segments.fresh(row.input_tokens - len(prompt))

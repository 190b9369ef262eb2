"""Recorded requests, sent again: what was shared is shared, and what followed an answer waits for it.

A request that waited for others comes when all of these have ended. Where its time to think was recorded, it comes that
long after the answer that it continues, however fast that came; where it was not, never before its recorded time:
max(recorded arrival, last of these ends). All others come at their times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.trace_rows import TraceRow


class TraceReplay:
    """A workload of rows; a call's number is one more than its row's position."""

    def __init__(self, rows: Iterable[TraceRow]) -> None:
        self._rows = list(rows)
        self._segments = PromptSegments()
        self._shared: dict[tuple[str, int], int] = {}  # by scope and block: the token of which its content consists
        self._followers: dict[int, list[int]] = {}  # who waits for a position
        self._awaited: list[int] = []  # how many answers each position still waits for
        self._earliest: list[float] = []  # when each may come
        self._stages: list[int] = []
        self._left: Counter[str] = Counter()  # requests of each interaction that have not ended
        for position, row in enumerate(self._rows):
            for before in row.after:
                self._followers.setdefault(before, []).append(position)
            self._awaited.append(len(row.after))
            self._earliest.append(0.0 if row.after and row.think is not None else row.arrival)
            self._stages.append(self._left[row.interaction] if row.interaction else 0)
            self._left[row.interaction] += 1

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        alone = [position for position, row in enumerate(self._rows) if not row.after]
        for position in sorted(alone, key=lambda position: self._earliest[position]):
            yield self._call(position)

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """See Workload."""
        assert call.ended_at is not None
        position = call.number - 1
        self._left[call.interaction] -= 1
        free = []
        for following in self._followers.pop(position, ()):
            row = self._rows[following]
            thinks = row.think or 0.0 if row.after[0] == position else 0.0
            self._earliest[following] = max(self._earliest[following], call.ended_at + thinks)
            self._awaited[following] -= 1
            if not self._awaited[following]:
                free.append(self._call(following))
        return free

    def _call(self, position: int) -> SimulatedCall:
        row = self._rows[position]
        return SimulatedCall(
            number=position + 1,
            client=row.account,
            app=row.app or "default",
            prompt=self._prompt(row),
            output_tokens=row.output_tokens,
            arrival=self._earliest[position],
            interaction=row.interaction,
            stage=self._stages[position],
            last=not row.interaction or self._left[row.interaction] == 1,
        )

    def _prompt(self, row: TraceRow) -> list[int]:
        """Shared blocks as far as the prompt reaches, then tokens of its own."""
        prompt: list[int] = []
        keys = ((scope, block) for scope, ids in row.blocks for block in ids)
        for key in islice(keys, row.input_tokens // max(row.block_tokens, 1)):
            if key not in self._shared:
                self._shared[key] = self._segments.token()
            prompt += [self._shared[key]] * row.block_tokens
        return prompt + self._segments.fresh(row.input_tokens - len(prompt))

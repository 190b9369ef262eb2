"""Replay of recorded requests with their shared prefixes and their dependencies.

A request that waited for other requests arrives after all of these have ended. If its thinking time was recorded, it
arrives that long after the end of the request that it continues, however fast that request was. If not, it arrives at
max(recorded arrival, last of these ends). All other requests arrive at their recorded times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.trace_rows import TraceRow


class TraceReplay:
    """A workload made of trace rows. A call's number is its row's position plus one. See Workload."""

    def __init__(self, rows: Iterable[TraceRow]) -> None:
        self._rows = list(rows)
        self._segments = PromptSegments()
        self._shared: dict[tuple[str, int], int] = {}  # (scope, block) to the token that the block repeats
        self._followers: dict[int, list[int]] = {}  # positions that wait for a position
        self._awaited: list[int] = []  # number of answers that each position still waits for
        self._earliest: list[float] = []  # earliest arrival of each position, in seconds
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
        alone = [position for position, row in enumerate(self._rows) if not row.after]
        for position in sorted(alone, key=lambda position: self._earliest[position]):
            yield self._call(position)

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
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
        """Return the shared blocks that fit into the prompt, followed by tokens that no other prompt has."""
        prompt: list[int] = []
        keys = ((scope, block) for scope, ids in row.blocks for block in ids)
        for key in islice(keys, row.input_tokens // max(row.block_tokens, 1)):
            if key not in self._shared:
                self._shared[key] = self._segments.token()
            prompt += [self._shared[key]] * row.block_tokens
        return prompt + self._segments.fresh(row.input_tokens - len(prompt))

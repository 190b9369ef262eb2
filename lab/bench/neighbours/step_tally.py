"""What an engine computed, and for whom: written by its process as lines of JSON, read by another one."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from local_worker.core.batch import Batch

LINE_SECONDS = 0.1
OUTPUT_COST = 2  # cost units of an output token; one of a prompt that is computed costs 1


@dataclass(slots=True)
class Tally:
    """The work of the steps that ended by `at` (monotonic seconds); `prompts` and `cached` count when they enter."""

    at: float = 0.0
    computed: dict[str, int] = field(default_factory=dict)  # client -> cost units
    prompts: int = 0  # tokens
    cached: int = 0
    busy: float = 0.0  # seconds of steps
    longest_step: float = 0.0  # seconds

    def add(self, other: "Tally") -> None:
        """Add a later tally to this one."""
        self.at = other.at
        for client, cost in other.computed.items():
            self.compute(client, cost)
        self.prompts += other.prompts
        self.cached += other.cached
        self.busy += other.busy
        self.longest_step = max(self.longest_step, other.longest_step)

    def compute(self, client: str, cost: int) -> None:
        """Count work for a client, in cost units."""
        self.computed[client] = self.computed.get(client, 0) + cost


class TallyWriter:
    """Writes a line for the steps that end within LINE_SECONDS, when a later one ends. What a request computes again
    does not count."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._clients: dict[int, str] = {}  # of each request, by arrival
        self._reached: dict[int, int] = {}  # number of tokens of each request that were computed, or found cached
        self._line = Tally()
        self._line_ends = 0.0

    def add(self, batch: Batch, seconds: float, ended: float) -> None:
        """Count a step that ends at `ended`."""
        if ended > self._line_ends:
            self._write()
            self._line_ends = ended + LINE_SECONDS
        line = self._line
        line.at = ended
        lengths = {entry.request: len(entry.tokens) for entry in batch.entered}
        self._clients |= {entry.request: entry.client for entry in batch.entered}
        for piece in batch.slices:
            number = piece.request
            if number not in self._reached:
                self._reached[number] = piece.start
                line.prompts += lengths[number]
                line.cached += piece.start
            new = range(max(piece.start, self._reached[number]), piece.stop)
            if new:
                self._reached[number] = piece.stop
                prompt = max(0, min(piece.stop, piece.prompt_tokens) - new.start)
                line.compute(self._clients[number], prompt + OUTPUT_COST * piece.samples)
        line.busy += seconds
        line.longest_step = max(line.longest_step, seconds)

    def _write(self) -> None:
        if self._line.at:
            self._file.write(json.dumps(asdict(self._line)) + "\n")
            self._line = Tally()

    def close(self) -> None:
        """Write what is counted, and close the file."""
        self._write()
        self._file.close()


def read_tally(path: Path, began: float, ended: float) -> Tally:
    """Return the work of the steps that ended after `began`, and by `ended`, as far as it is written."""
    total = Tally(at=began)
    for line in _lines(path):
        if began < line.at <= ended:
            total.add(line)
    return total


def _lines(path: Path) -> Iterator[Tally]:
    with path.open() as file:
        for text in file:
            if text.endswith("\n"):
                yield Tally(**json.loads(text))

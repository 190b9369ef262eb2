"""What was attacked, how often, with which result, and what it did to the memory of the processes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.services import Process

HEADER = ("attack", "count", "result", "memory before and after, MiB")
TARGETS = ("what is measured", "measured", "target")


@dataclass(slots=True)
class Report:
    """Rows of two Markdown tables: of figures that have a target, and one for each kind of attack."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)
    targets: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, attack: str, ends: Counter[str], memory: object = "") -> None:
        """How many attempts came to which end, and what it did to memory; adds to what there is of this attack."""
        self.ends.setdefault(attack, Counter()).update(ends)
        self.memory[attack] = str(memory)

    def target(self, what: str, measured: str, target: str) -> None:
        """Note a figure, and what it has to be."""
        self.targets.append((what, measured, target))

    def write(self, path: Path) -> None:
        """As a file."""
        attacks = []
        for attack, ends in self.ends.items():
            came_of_it = ", ".join(f"{end} {count:,}" for end, count in ends.most_common())
            attacks.append((attack, f"{ends.total():,}", came_of_it, self.memory[attack]))
        path.write_text(f"{_table(TARGETS, self.targets)}\n{_table(HEADER, attacks)}")


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ("---",) * len(header), *rows))


class Memory:
    """What services have resident, from now on until it is asked."""

    def __init__(self, **processes: Process) -> None:
        self._processes = processes
        self._before = {name: process.resident for name, process in processes.items()}
        for process in processes.values():
            process.begin_peak()

    @property
    def risen(self) -> int:
        """MiB that the one that rose most has now beyond what it had before."""
        return max(process.resident - self._before[name] for name, process in self._processes.items())

    @property
    def grown(self) -> int:
        """MiB by which the one that grew most has grown at its peak."""
        return max(process.peak - self._before[name] for name, process in self._processes.items())

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {self._before[name]} → {process.resident} (peak {process.peak})"
            for name, process in self._processes.items()
        )

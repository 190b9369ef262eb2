"""The systems that are compared, and the alternating rounds in which each of them runs the job."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.bench.control_plane.job import Job, Measured


@dataclass(frozen=True, slots=True)
class System:
    """A way from an application to a worker; `run` runs a job on it.

    `between` names the processes whose CPU time counts, and `direct` the system without them, whose time to the first
    token is subtracted.
    """

    name: str
    run: Callable[[Job], Measured]
    between: tuple[str, ...] = ()
    direct: str = ""


@dataclass(slots=True)
class Rounds:
    """The measurements of one system, one per round."""

    system: System
    rounds: list[Measured] = field(default_factory=list)

    def median(self, figure: Callable[[Measured], float]) -> float:
        """Return the median over the rounds."""
        return statistics.median(map(figure, self.rounds))

    def cpu_ms(self, *names: str) -> float:
        """Return the median of the CPU milliseconds per call of these processes, by default of all in between."""
        return self.median(lambda measured: measured.cpu_ms(*(names or self.system.between)))

    def ratio(self, reference: "Rounds") -> float:
        """Return the median of the ratios, round by round, of the CPU per call to that of `reference`."""
        pairs = zip(self.rounds, reference.rounds, strict=True)
        between, other = self.system.between, reference.system.between
        return statistics.median(mine.cpu_ms(*between) / its.cpu_ms(*other) for mine, its in pairs)


def alternate(systems: Sequence[System], job: Job, rounds: int) -> dict[str, Rounds]:
    """Run the job on every system once per round, in every second round in reverse order; return them by name."""
    measured = {system.name: Rounds(system) for system in systems}
    for number in range(rounds):
        for system in systems if number % 2 == 0 else reversed(systems):
            measured[system.name].rounds.append(system.run(job))
    return measured

"""What an item of the reproduction is: jobs that can run anywhere, and what is read from their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli import report
from reproduction.sources import Sources
from simulation.simulation_job import SimulationJob

NOT_MEASURED = "the paper has no such measurement; this shows what the result depends on"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report. `agrees`: is the paper's conclusion, as `paper` words it, ours, too?

    None when nothing is concluded; then `because` says why not, and its absence raises ValueError.
    """

    claim: str
    paper: str
    ours: str
    agrees: bool | None = None
    rule: str = ""  # what decides, with every threshold
    because: str = ""  # of what missed, or of what is not judged; not shown where we agree

    def __post_init__(self) -> None:
        if self.agrees is None and not self.because:
            raise ValueError(f"the row {self.claim!r} is not judged and does not say why")


@dataclass(frozen=True, slots=True)
class Report(report.Report):
    """What an item has to say."""

    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """What an item simulates. `read` gets the jobs' results under the jobs' names."""

    setup: str  # and how it differs from the paper's
    jobs: Mapping[str, SimulationJob]
    read: Callable[[Mapping[str, Any]], Report]


@dataclass(frozen=True, slots=True)
class Item:
    """One figure or table, or a few that are read from the same runs. `study` raises SourceMissing."""

    name: str
    source: str  # where it is in which paper
    study: Callable[[Sources], Study]

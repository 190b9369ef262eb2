"""An item of the reproduction: jobs that can run in any process, and a function that reads their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli import report
from lab.reproduction.sources import Sources
from simulation.simulation_job import SimulationJob

NOT_MEASURED = "the paper has no such measurement; this shows what the result depends on"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report, where `agrees` says whether our result supports the paper's conclusion in `paper`.

    It is None when no conclusion is drawn; then `because` must give the reason, or ValueError is raised.
    """

    claim: str
    paper: str
    ours: str
    agrees: bool | None = None
    rule: str = ""  # the condition for agreement, with every threshold
    because: str = ""  # reason for a disagreement or for no conclusion; not shown when we agree

    def __post_init__(self) -> None:
        if self.agrees is None and not self.because:
            raise ValueError(f"the row {self.claim!r} is not judged and gives no reason")


@dataclass(frozen=True, slots=True)
class Report(report.Report):
    """The report of an item with its findings."""

    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """The simulations of an item, and `read`, which gets the jobs' results under the jobs' names."""

    setup: str  # description of the setup, with its differences from the paper's
    jobs: Mapping[str, SimulationJob]
    read: Callable[[Mapping[str, Any]], Report]


@dataclass(frozen=True, slots=True)
class Item:
    """One figure or table, or several that are read from the same runs. `study` raises SourceMissing."""

    name: str
    source: str  # paper and figure or table
    study: Callable[[Sources], Study]

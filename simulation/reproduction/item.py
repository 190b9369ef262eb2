"""What an item of the reproduction is: jobs that can run anywhere, and what is read from their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simulation.sources import Sources

Ended = Callable[[], None]
NOT_MEASURED = "the paper has no such measurement; this shows what the result depends on"


class Job(Protocol):
    """One simulation: deterministic, picklable, and equal to another job exactly when its result would be."""

    def __hash__(self) -> int:
        """Equal jobs are run once, whichever items ask for them."""

    def run(self, ended: Ended | None = None) -> Any:
        """The result, small enough to be sent to another process; `ended` is told of each call that is over."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a chart."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration of a chart, with its label beside it; those on the front are joined by a line."""

    label: str
    x: float
    y: float
    on_front: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel. With `names`, those of x = 0, 1, ..., the lines are drawn as bars; `points` are drawn alone."""

    title: str
    x: str
    y: str
    lines: Sequence[Line] = ()
    log_y: bool = False
    names: Sequence[str] = ()
    points: Sequence[Point] = ()


def bars(title: str, y: str, names: Sequence[str], values: Mapping[str, Sequence[float]]) -> Chart:
    """At each name one bar of each label in `values`."""
    lines = [Line(label, range(len(names)), heights) for label, heights in values.items()]
    return Chart(title, "", y, lines, names=names)


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
class Report:
    """What an item has to say: rows of numbers (the first names the columns), panels, findings."""

    rows: Sequence[Sequence[object]]
    charts: Sequence[Chart] = ()
    findings: Sequence[Finding] = ()
    columns: int = 3  # of panels


@dataclass(frozen=True, slots=True)
class Study:
    """What an item simulates. `read` gets the jobs' results under the jobs' names."""

    setup: str  # and how it differs from the paper's
    jobs: Mapping[str, Job]
    read: Callable[[Mapping[str, Any]], Report]


@dataclass(frozen=True, slots=True)
class Item:
    """One figure or table, or a few that are read from the same runs. `study` raises SourceMissing."""

    name: str
    source: str  # where it is in which paper
    study: Callable[[Sources], Study]

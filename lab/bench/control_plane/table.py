"""The table of a comparison, in Markdown."""

from collections.abc import Mapping

from lab.bench.control_plane.job import Job, Measured
from lab.bench.control_plane.system import Rounds

COLUMNS = (
    "pace",
    "system",
    "calls/s",
    "CPU ms per call",
    "ratio",
    "of it gateway",
    "gateway CPU µs per token",
    "first token p50 ms",
    "p99 ms",
    "added p50 ms",
    "added p99 ms",
)


def heading() -> str:
    """Return the first two lines of the table."""
    return "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|"


def row(job: Job, mine: Rounds, all_rounds: Mapping[str, Rounds], reference: str, us_per_token: float | None) -> str:
    """Return the line of one system; the ratio is to the system named `reference`, if it was measured."""
    system, direct, other = mine.system, all_rounds.get(mine.system.direct), all_rounds.get(reference)

    def first(measured: Measured) -> float:
        return measured.first_ms(0.99)

    def half(measured: Measured) -> float:
        return measured.median_ms

    cells = [
        str(job),
        system.name,
        f"{mine.median(lambda measured: measured.rate):.0f}",
        f"{mine.cpu_ms():.2f}" if system.between else "-",
        f"{mine.ratio(other):.1f}" if system.between and other else "-",
        f"{mine.cpu_ms('gateway'):.2f}" if "gateway" in system.between else "-",
        "-" if us_per_token is None else f"{us_per_token:.0f}",
        f"{mine.median(half):.1f}",
        f"{mine.median(first):.1f}",
        f"{mine.median(half) - direct.median(half):.1f}" if direct else "-",
        f"{mine.median(first) - direct.median(first):.1f}" if direct else "-",
    ]
    return "| " + " | ".join(cells) + " |"

"""The table of all neighbours, and the rows that miss a target."""

from collections.abc import Sequence

from lab.bench.neighbours.row import Row, Times

HEADS = (
    "neighbour",
    "policy",
    "quiet user's first token, p50 / p99, s",
    "over alone",
    "p99 allowed",
    "between tokens, p50 / p99, ms",
    "over alone",
    "neighbour's service/s",
    "all",
    "of FCFS's",
    "hit rate",
    "misses",
)


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a row for each neighbour and policy."""
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def misses(rows: Sequence[Row], policy: str) -> str:
    """Return a line that names the neighbours of `policy` with a target that is missed."""
    ours = [row for row in rows if row.policy == policy]
    missed = [f"{row.beside} ({', '.join(row.misses)})" for row in ours if row.misses]
    kept = f"{policy} keeps the targets beside {len(ours) - len(missed)} of {len(ours)} neighbours"
    return f"{kept}; it misses them beside: {'; '.join(missed)}" if missed else kept


def _cells(row: Row) -> list[str]:
    between = row.between
    return [
        row.beside,
        row.policy,
        _times(row.first, 1, "{:.2f}"),
        _over(row.first, row.first_alone),
        f"{row.allowed:.2f}",
        _times(between, 1000, "{:.0f}") if between else "none",
        _over(between, row.between_alone) if between else "",
        f"{row.neighbours:,.0f}",
        f"{row.total:,.0f}",
        "" if row.of_baseline is None else f"{row.of_baseline:.2f}",
        f"{row.hit_rate:.0%}",
        ", ".join(row.misses) or "none",
    ]


def _times(times: Times, unit: float, form: str) -> str:
    return f"{form.format(unit * times.p50)} / {form.format(unit * times.p99)}"


def _over(times: Times, alone: Times) -> str:
    return f"{times.p50 / alone.p50:.1f} / {times.p99 / alone.p99:.1f}"

"""Recorded agents: their interactions, and the tenants that run them.

A pause of more than PAUSE_SECONDS, after which a gateway closes an interaction, ends one here, too: what follows is a
new interaction with a long first prompt. Where a trace has no thinking times, the time between two recorded calls is
taken, which holds the time of the recorded model and is therefore too long.
"""

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.trace_rows import TraceRow
from simulation.traces import read

PAUSE_SECONDS = 120.0
RATES = "servegen_m-large_rates.csv.gz"


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of an interaction: it follows the answers to the turns `after`, with `pause` seconds after the first."""

    row: TraceRow
    pause: float
    after: tuple[int, ...]


Session = Sequence[Turn]


def sessions(path: Path, longest: int) -> list[Session]:
    """Return the interactions of a trace that have two calls or more, and no prompt above `longest` tokens."""
    rows = read(path).rows
    heads, members = list[int](), defaultdict[int, list[int]](list)
    for position, row in enumerate(rows):
        continues = bool(row.after) and _pause(rows, row) <= PAUSE_SECONDS
        heads.append(heads[row.after[0]] if continues else position)
        members[heads[position]].append(position)
    taken = [group for group in members.values() if len(group) > 1]
    return [_session(rows, group) for group in taken if max(rows[each].input_tokens for each in group) <= longest]


def tenant_weights(path: Path, tenants: int) -> list[float]:
    """Return the parts of requests that the largest clients of a table of rates have, the largest first."""
    rates: Counter[str] = Counter()
    with gzip.open(path, "rt") as table:
        for row in csv.DictReader(table):
            rates[row["client"]] += float(row["rate_rps"])  # type: ignore[assignment]
    return [float(rate) for _, rate in rates.most_common(tenants)]


def _session(rows: Sequence[TraceRow], group: Sequence[int]) -> Session:
    places = {position: place for place, position in enumerate(group)}
    return [
        Turn(
            rows[position],
            _pause(rows, rows[position]) if place else 0.0,
            tuple(places[each] for each in rows[position].after if each in places) if place else (),
        )
        for place, position in enumerate(group)
    ]


def _pause(rows: Sequence[TraceRow], row: TraceRow) -> float:
    if row.think is not None or not row.after:
        return row.think or 0.0
    return max(0.0, row.arrival - rows[row.after[0]].arrival)

"""Requests drawn from ServeGen's parameters of real clients: a file of rates, and a file of lengths beside it.

`*_rates` has a renewal process per client and window of ten minutes; `*_lengths` has percentiles per client and window
of six hours. Clients without lengths are left out; no prefix is shared. Equal files give equal requests.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from fairlead.errors import InvalidRequest
from simulation.tables import TableRow, read_table
from simulation.trace_rows import LONGEST, TraceContents, TraceRow

RATES, LENGTHS = "_rates", "_lengths"
WINDOW = 600.0
PERCENTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
QUANTILES = tuple(f"p{percent}" for percent in PERCENTILES)
LEAST_SHAPE, LEAST_RATE, MOST_RATE = 0.006, 1e-9, 1e4  # published values lie within; beyond, math.gamma overflows
FIELDS = ("input_tokens", "output_tokens")
Lengths = dict[tuple[str, str], list[tuple[float, list[float]]]]  # by client and field: (window start, percentiles)


def is_servegen(path: Path) -> bool:
    """Return whether the file's name marks it as a file of rates."""
    return path.name.startswith("servegen_") and RATES in path.name


def read_servegen(path: Path, limit: int | None) -> TraceContents:
    """Return the first `limit` requests of all clients; raises InvalidRequest when no file of lengths is beside the
    rates."""
    beside = path.with_name(path.name.replace(RATES, LENGTHS))
    if not beside.is_file():
        raise InvalidRequest(f"{path} contains only rates: the file of lengths {beside.name} is not beside it")
    lengths = _lengths(beside)
    table = list(read_table(path, ("client", "window_start_s", "rate_rps", "dist", "shape")))
    clients = {line.text("client") for line in table}
    known = [line for line in table if all((line.text("client"), field) in lengths for field in FIELDS)]
    known.sort(key=lambda line: (line.number("window_start_s"), line.text("client")))
    rows: list[TraceRow] = []
    for _, window in groupby(known, key=lambda line: line.number("window_start_s")):
        rows += sorted((row for line in window for row in _requests(line, lengths)), key=lambda row: row.arrival)
        if limit is not None and len(rows) >= limit:
            break
    unknown = len(clients) - len({line.text("client") for line in known})
    left_out = (f"{path}: {unknown} of {len(clients)} clients are left out: they have no lengths",) if unknown else ()
    return TraceContents([row.at(row.arrival - rows[0].arrival) for row in rows[:limit]], left_out)


def _lengths(path: Path) -> Lengths:
    found: Lengths = {}
    for line in read_table(path, ("client", "window_start_s", "field", *QUANTILES)):
        if line.text("field") in FIELDS:
            window = line.number("window_start_s"), [line.number(quantile, LONGEST) for quantile in QUANTILES]
            found.setdefault((line.text("client"), line.text("field")), []).append(window)
    return {key: sorted(windows) for key, windows in found.items()}


def _requests(line: TableRow, lengths: Lengths) -> Iterator[TraceRow]:
    client, start = line.text("client"), line.number("window_start_s")
    rng = random.Random(f"{client}/{start}")
    inputs, outputs = (_percentiles_at(lengths[client, field], start) for field in FIELDS)
    time = rng.random() * _gap(line, rng)
    while time < WINDOW:
        yield TraceRow(
            arrival=start + time,
            client=f"client-{client}",
            app="default",
            input_tokens=max(round(_sample_length(inputs, rng)), 1),
            output_tokens=max(round(_sample_length(outputs, rng)), 1),
        )
        time += _gap(line, rng)


def _percentiles_at(windows: Sequence[tuple[float, list[float]]], start: float) -> list[float]:
    """Return the percentiles of the last window that began by `start`, or else of the first window."""
    return windows[max(bisect_right([begin for begin, _ in windows], start) - 1, 0)][1]


def _gap(line: TableRow, rng: random.Random) -> float:
    """Draw the seconds between two requests: the row gives the distribution's shape, and its rate gives the mean."""
    shape, mean = line.from_least("shape", LEAST_SHAPE), 1 / line.from_least("rate_rps", LEAST_RATE, MOST_RATE)
    match line.text("dist"):
        case "Gamma":
            return rng.gammavariate(shape, mean / shape)
        case "Weibull":
            return rng.weibullvariate(mean / math.gamma(1 + 1 / shape), shape)
        case other:
            raise line.wrong("dist", f"{other!r} is neither Gamma nor Weibull")


def _sample_length(quantiles: Sequence[float], rng: random.Random) -> float:
    """Draw a length by inverting the distribution function, which is linear between the percentiles."""
    percent = 100 * rng.random()
    for (low, a), (high, b) in pairwise(zip(PERCENTILES, quantiles, strict=True)):
        if percent <= high:
            return a + (b - a) * (percent - low) / (high - low)
    return quantiles[-1]

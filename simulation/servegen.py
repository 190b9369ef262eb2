"""ServeGen's parameters of real clients made into requests: a file of rates, and beside it the file of lengths.

`*_rates` has a renewal process per client and window of ten minutes, `*_lengths` percentiles per client and window of
six hours. Clients without lengths are left out; nothing is shared. The same files, the same requests.
"""

import csv
import gzip
import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from fairlead.errors import InvalidRequest
from simulation.replay import LONGEST_OUTPUT, Row

RATES, LENGTHS = "_rates", "_lengths"
WINDOW = 600.0
PERCENTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
Fields = dict[str, str]


def is_servegen(path: Path) -> bool:
    """Does the name say that the file holds rates?"""
    return path.name.startswith("servegen_") and RATES in path.name


def read_servegen(path: Path, limit: int | None) -> list[Row]:
    """The first `limit` requests of all clients; raises InvalidRequest when there are no lengths beside the rates."""
    beside = path.with_name(path.name.replace(RATES, LENGTHS))
    if not beside.is_file():
        raise InvalidRequest(f"{path} has rates only: {beside.name}, with the lengths, is not beside it")
    lengths = _lengths(beside)
    windows = sorted(_rows(path), key=lambda row: (float(row["window_start_s"]), row["client"]))
    rows: list[Row] = []
    for _, window in groupby(windows, key=lambda row: row["window_start_s"]):
        rows += sorted((row for fields in window for row in _requests(fields, lengths)), key=lambda row: row.arrival)
        if limit is not None and len(rows) >= limit:
            break
    return [row.at(row.arrival - rows[0].arrival) for row in rows[:limit]]


def _rows(path: Path) -> Iterator[Fields]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


Lengths = dict[tuple[str, str], list[tuple[float, list[float]]]]  # by client and field: window start, percentiles


def _lengths(path: Path) -> Lengths:
    found: Lengths = {}
    for row in _rows(path):
        quantiles = [float(row[f"p{percent}"]) for percent in PERCENTILES]
        found.setdefault((row["client"], row["field"]), []).append((float(row["window_start_s"]), quantiles))
    return {key: sorted(windows) for key, windows in found.items()}


def _requests(fields: Fields, lengths: Lengths) -> Iterator[Row]:
    client, start = fields["client"], float(fields["window_start_s"])
    if (client, "input_tokens") not in lengths:
        return
    rng = random.Random(f"{client}/{start}")
    inputs, outputs = (_in_force(lengths[client, field], start) for field in ("input_tokens", "output_tokens"))
    time = rng.random() * _gap(fields, rng)
    while time < WINDOW:
        yield Row(
            arrival=start + time,
            client=f"client-{client}",
            app="default",
            input_tokens=max(round(_drawn(inputs, rng)), 1),
            output_tokens=min(max(round(_drawn(outputs, rng)), 1), LONGEST_OUTPUT),
        )
        time += _gap(fields, rng)


def _in_force(windows: Sequence[tuple[float, list[float]]], start: float) -> list[float]:
    """The last window that began by `start`, or the first."""
    return windows[max(bisect_right([begin for begin, _ in windows], start) - 1, 0)][1]


def _gap(fields: Fields, rng: random.Random) -> float:
    """Between two requests: the distribution's shape, its mean by the rate."""
    shape, mean = float(fields["shape"]), 1 / float(fields["rate_rps"])
    match fields["dist"]:
        case "Gamma":
            return rng.gammavariate(shape, mean / shape)
        case "Weibull":
            return rng.weibullvariate(mean / math.gamma(1 + 1 / shape), shape)
        case other:
            raise InvalidRequest(f"{other!r} is neither Gamma nor Weibull", "dist")


def _drawn(quantiles: Sequence[float], rng: random.Random) -> float:
    """By the inverse of the distribution function, linear between the percentiles."""
    percent = 100 * rng.random()
    for (low, a), (high, b) in pairwise(zip(PERCENTILES, quantiles, strict=True)):
        if percent <= high:
            return a + (b - a) * (percent - low) / (high - low)
    return quantiles[-1]

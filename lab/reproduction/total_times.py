"""Errors of total times by GPU: how well a fit to some runs predicts another, and how far measurements differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lab.reproduction.agreement import TOTAL, Agreement
from lab.reproduction.item import Finding
from lab.reproduction.reference import Run

UNEVEN = frozenset({"real", "poisson_on_off_overload", "poisson_short_long"})  # workloads without uniform rates
A10G, A100 = "a10g llama-2-7b", "a100-80g llama-2-13b"
LEAST = 3  # runs needed to leave one out


@dataclass(frozen=True, slots=True)
class Distances:
    """The agreement of a measurement with its simulation, and of this simulation with one that has jitter.

    The second is present where the pair is predicted and has many clients. `context_seconds` is the time that the
    simulated run spent on reading the context.
    """

    measured: Agreement
    jittered: Agreement | None
    pool: str
    workload: str
    context_seconds: float


def context_tokens(run: Run) -> float:
    """Return the tokens of context that all decoding steps of the run's answered requests read."""
    answered = [row for row in run.rows if row.latency is not None]
    return sum(row.output_tokens * (row.input_tokens + row.output_tokens / 2) for row in answered)


def left_out(distances: Sequence[Distances]) -> list[Finding]:
    """Predict each run with the cost of context that best fits the others' total times: simulated times are linear in
    it."""
    runs = [d for d in distances if d.pool == A100]
    if len(runs) < LEAST:
        return []
    errors = {run.measured.name: _error(run, [other for other in runs if other is not run]) for run in runs}
    worst = max(errors, key=lambda name: abs(errors[name]))
    return [
        Finding(
            f"A100, each of {len(runs)} runs by what context costs in the others: total time",
            f"within {100 * TOTAL:.0f} %",
            f"{', '.join(f'{error:+.1%}' for error in errors.values())}; worst {worst}",
            abs(errors[worst]) <= TOTAL,
            "all of them; the profile's other figures stay as they were fitted to three of these runs",
            f"{worst} is missed by {errors[worst]:+.1%}",
        )
    ]


def _error(run: Distances, others: Sequence[Distances]) -> float:
    """Return the error of the simulated total time, relative to the measured one."""
    shares = [other.context_seconds / other.measured.measured_seconds for other in others]
    lacking = [1 - other.measured.simulated_seconds / other.measured.measured_seconds for other in others]
    products = [share * lack for share, lack in zip(shares, lacking, strict=True)]
    change = sum(products) / sum(share * share for share in shares)
    seconds = run.measured.simulated_seconds + change * run.context_seconds
    return seconds / run.measured.measured_seconds - 1


def uniform_rates(distances: Sequence[Distances]) -> list[Finding]:
    """Compare total times of equal requests under several schedulers: their spread is the measurement's own error."""
    runs = [d for d in distances if d.pool == A10G and d.workload not in UNEVEN]
    if not runs:
        return []
    same: dict[tuple[str, int], list[float]] = {}
    for d in runs:
        key = d.workload, sum(d.measured.requests.values())
        same.setdefault(key, []).append(d.measured.measured_seconds)
    apart = max(max(seconds) / min(seconds) - 1 for seconds in same.values())
    errors = {d.measured.name: d.measured.simulated_seconds / d.measured.measured_seconds - 1 for d in runs}
    worst = max(errors, key=lambda name: abs(errors[name]))
    return [
        Finding(
            f"A10G, {len(runs)} runs at uniform rates: total time, simulated against measured",
            f"the same requests under two schedulers, both of which keep the GPU busy, take up to {apart:.1%} longer",
            f"{fmean(errors.values()):+.1%} on average, {min(errors.values()):+.1%} to {max(errors.values()):+.1%}",
            abs(errors[worst]) <= apart,
            "all of them as near as the measurements are to each other",
            f"{worst} is missed by {errors[worst]:+.1%}",
        )
    ]

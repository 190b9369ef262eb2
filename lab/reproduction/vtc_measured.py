"""The VTC authors' own measurements, simulated with the same arrivals and lengths, and our errors.

The error of a simulation against itself with jitter in its steps is shown as well: no prediction can be closer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.report import Chart, ChartLine, bars
from lab.reproduction.agreement import CURVE, FIRST_TOKEN, TIE, TOTAL, Agreement, compare, simulate
from lab.reproduction.fitted import FITTED_TO, SLORA
from lab.reproduction.item import Finding, Item, Report, Study
from lab.reproduction.published import ASKED
from lab.reproduction.reference import read_run, run_names
from lab.reproduction.sources import Sources
from lab.reproduction.total_times import Distances, context_tokens, left_out, uniform_rates
from simulation.simulation_job import SimulationJob
from simulation.traces import SourceMissing

MANY = 100
JITTER = 0.01  # relative, per step: the residual of the fitted runs
CROWDED = frozenset({"real", "overload-multi"})  # workloads of 27 and of 8 clients
CLASSES = ((1, 2), (3, 9), (10, 29), (30, 99), (MANY, math.inf))  # ranges of clients by number of requests
HEADER = (
    "pair",
    "fitted",
    "measured s",
    "simulated s",
    "total error",
    "curve error, worst client",
    "curves within 10 %",
    "first-token error, worst client",
    "first tokens within 20 %",
    "first-token error, all requests",
    "same client waits longest",
    "refused, measured",
    "refused, simulated",
)


@dataclass(frozen=True, slots=True)
class Error:
    """The relative errors of one client of a pair."""

    pair: str
    client: str
    requests: int
    size: float


@dataclass(frozen=True, slots=True)
class Misses:
    """Clients with this many requests: those beyond the tolerances, and those beyond them by jitter alone."""

    requests: str
    curves: int
    waits: int
    clients: int
    noisy_curves: int
    noisy_waits: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A simulation job: one measured scheduler and workload."""

    folder: Path
    name: str

    def run(self, ended: Callable[[], None] | None = None) -> Distances:
        """Simulate the pair, once or twice."""
        run = read_run(self.folder, self.name)
        profile = SLORA[run.pool]
        simulated = simulate(run, profile)
        agreement = compare(run, simulated)
        jittered = None
        if self.name not in FITTED_TO and run.workload in CROWDED:
            jittered = compare(simulated, simulate(run, replace(profile, jitter=JITTER)))
        seconds = context_tokens(run) * profile.coefficients.context
        return Distances(agreement, jittered, run.pool, run.workload, seconds)


def _study(sources: Sources) -> Study:
    if sources.reference is None:
        raise SourceMissing(ASKED)
    jobs: dict[str, SimulationJob] = {name: Pair(sources.reference, name) for name in run_names(sources.reference)}
    fitted = ", ".join(sorted(FITTED_TO))
    return Study(f"Step times were fitted to {fitted}; every other pair is a prediction.", jobs, _read)


def _read(distances: Mapping[str, Distances]) -> Report:
    ordered = sorted((d.measured for d in distances.values()), key=lambda a: (a.name not in FITTED_TO, a.name))
    rows = [HEADER, *(_row(agreement) for agreement in ordered)]
    fitted = _findings("fitted", [agreement for agreement in ordered if agreement.name in FITTED_TO])
    predicted = _findings("predicted", [agreement for agreement in ordered if agreement.name not in FITTED_TO])
    misses = _misses([(d.measured, d.jittered) for d in distances.values() if d.jittered is not None])
    charts = [*_by_pair(ordered), *([_by_class(misses)] if misses else [])]
    measured = list(distances.values())
    findings = [*fitted, *predicted, *left_out(measured), *uniform_rates(measured), *map(_noise, misses)]
    return Report(rows, charts, findings)


def _by_pair(agreements: Sequence[Agreement]) -> list[Chart]:
    """Chart the pairs in the order of the rows."""
    pairs = range(1, len(agreements) + 1)
    seconds = [
        ChartLine("measured", pairs, [a.measured_seconds for a in agreements]),
        ChartLine("simulated", pairs, [a.simulated_seconds for a in agreements]),
    ]
    errors = [
        ChartLine("total time", pairs, [a.total for a in agreements]),
        ChartLine("first token, all requests", pairs, [a.wait_overall for a in agreements]),
    ]
    return [
        Chart("total time", "pair, as in the CSV file", "seconds", seconds),
        Chart("errors", "pair, as in the CSV file", "error, relative to the measurement", errors),
    ]


def _row(a: Agreement) -> tuple[object, ...]:
    measured, simulated = a.refused
    return (
        *(a.name, a.name in FITTED_TO, a.measured_seconds, a.simulated_seconds, a.total),
        *(max(a.curves.values()), a.curves_within, max(a.waits.values()), a.waits_within, a.wait_overall),
        *(a.longest, measured, simulated),
    )


def _findings(kind: str, agreements: Sequence[Agreement]) -> list[Finding]:
    if not agreements:
        return []

    def finding(claim: str, target: str, kept: Sequence[bool], detail: str, because: str) -> Finding:
        ours = f"{sum(kept)} of {len(kept)} pairs; {detail}"
        return Finding(f"{kind}: {claim}", target, ours, all(kept), "in all pairs", because)

    worst = max(agreements, key=lambda a: a.total)
    missed = [a.name for a in agreements if not a.longest]
    curves = [Error(a.name, c, n, a.curves[c]) for a in agreements for c, n in a.requests.items()]
    waits = [Error(a.name, c, n, a.waits[c]) for a in agreements for c, n in a.requests.items()]
    return [
        finding(
            "total time",
            f"within {100 * TOTAL:.0f} %",
            [a.total <= TOTAL for a in agreements],
            f"worst {worst.total:.1%}",
            f"{worst.name} is the worst",
        ),
        finding(
            "service curves, every client at any time",
            f"within {100 * CURVE:.0f} %",
            [max(a.curves.values()) <= CURVE for a in agreements],
            _clients(curves, CURVE),
            _who(curves, CURVE),
        ),
        finding(
            "mean first-token latency of every client",
            f"within {100 * FIRST_TOKEN:.0f} %",
            [max(a.waits.values()) <= FIRST_TOKEN for a in agreements],
            _clients(waits, FIRST_TOKEN),
            _who(waits, FIRST_TOKEN),
        ),
        finding(
            "who waits longest",
            f"always right, to within {100 * TIE:.0f} % of the longest wait",
            [a.longest for a in agreements],
            f"missed: {', '.join(missed) or 'none'}",
            "; ".join(_tied(a) for a in agreements if not a.longest),
        ),
    ]


def _clients(errors: Sequence[Error], most: float) -> str:
    many = [e for e in errors if e.requests >= MANY]
    within = [sum(e.size <= most for e in found) for found in (errors, many)]
    return f"{within[0]} of {len(errors)} clients, {within[1]} of {len(many)} of those with {MANY} requests or more"


def _who(errors: Sequence[Error], most: float) -> str:
    missed = [e for e in errors if e.size > most]
    if not missed:
        return ""
    worst, requests = max(missed, key=lambda e: e.size), sorted(e.requests for e in missed)
    return (
        f"{len(missed)} of {len(errors)} clients missed, half of those with {requests[len(missed) // 2]} requests or "
        f"fewer; the worst is client {worst.client} of {worst.pair}, with {worst.requests}, by {worst.size:.0%}"
    )


def _tied(a: Agreement) -> str:
    measured, simulated = a.slowest
    return (
        f"{a.name}: client {measured.client} ({measured.requests} requests) waited {measured.measured:.1f} s measured, "
        f"{measured.simulated:.1f} s simulated; client {simulated.client} ({simulated.requests}) "
        f"{simulated.measured:.1f} s and {simulated.simulated:.1f} s"
    )


def _misses(pairs: Sequence[tuple[Agreement, Agreement]]) -> list[Misses]:
    if not pairs:
        return []
    ours, jittered = zip(*pairs, strict=True)
    return [Misses(_class(*ends), *_missed(ours, *ends), *_missed(jittered, *ends)[:2]) for ends in CLASSES]


def _class(least: int, most: float) -> str:
    return f"{least} to {most}" if most < math.inf else f"{least} or more"


def _by_class(misses: Sequence[Misses]) -> Chart:
    counts = {
        "curve, prediction": [m.curves for m in misses],
        "curve, jitter alone": [m.noisy_curves for m in misses],
        "first token, prediction": [m.waits for m in misses],
        "first token, jitter alone": [m.noisy_waits for m in misses],
    }
    return bars("clients missed by their number of requests", "clients", [m.requests for m in misses], counts)


def _noise(m: Misses) -> Finding:
    """Compare the number of prediction misses with the number that the jitter alone causes."""
    # Counts within two standard deviations are not distinguished.
    most = [noise + 2 * math.sqrt(max(noise, 1)) for noise in (m.noisy_curves, m.noisy_waits)]
    return Finding(
        f"predicted, 8 or 27 clients, those with {m.requests} requests: missed in curve, in first token",
        f"as many as by jitter alone: {m.noisy_curves} and {m.noisy_waits} of {m.clients}",
        f"{m.curves} and {m.waits} of {m.clients}",
        m.curves <= most[0] and m.waits <= most[1],
        f"at most two standard deviations more, {most[0]:.1f} and {most[1]:.1f}",
        f"{m.curves - m.noisy_curves:+} and {m.waits - m.noisy_waits:+}",
    )


def _missed(agreements: Sequence[Agreement], least: int, most: float) -> tuple[int, int, int]:
    """Return the numbers of clients beyond the tolerance in curve and in first-token latency, and of all clients."""
    clients = [(a.curves[c], a.waits[c]) for a in agreements for c, n in a.requests.items() if least <= n <= most]
    return sum(e > CURVE for e, _ in clients), sum(e > FIRST_TOKEN for _, e in clients), len(clients)


ITEMS = (Item("vtc-measured", "VTC's published measurements, 40 pairs of scheduler and workload", _study),)

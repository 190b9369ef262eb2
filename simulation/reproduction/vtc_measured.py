"""The VTC authors' own measurements, simulated with the same arrivals and lengths, and how far we are off.

And how far off a simulation is from itself when its steps jitter: no prediction can be expected to be closer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulation.agreement import CURVE, FIRST_TOKEN, TOTAL, Agreement, compare, simulate
from simulation.fitted import FITTED_TO, SLORA
from simulation.reference import read_run, run_names
from simulation.reproduction.item import Finding, Item, Job, Report, Study
from simulation.sources import SourceMissing, Sources

MANY = 100
JITTER = 0.01  # of a step, independently: what the fitted runs show beside the fit
CROWDED = frozenset({"real", "overload-multi"})  # workloads of 27 and of 8 clients
CLASSES = ((1, 2), (3, 9), (10, 29), (30, 99), (MANY, math.inf))  # of clients, by requests
SMALL_CLIENTS = (
    "the order of admissions is chaotic: an arrival just before or after a look at the queue moves everybody behind it "
    "by ten steps, and clients with few requests have nothing to average over. A jitter of 1 % of step times does as "
    "much, see the rows by number of requests"
)
BEYOND_JITTER = "two standard deviations more: step times or a habit of the system that we do not know"
TIED = "the two that wait longest sent two requests and one, and waited a few per cent apart"
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
class Distances:
    """Of a measurement and its simulation; of this and one with jitter, where the pair is predicted and crowded."""

    measured: Agreement
    jittered: Agreement | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A job: one scheduler and workload that were measured."""

    folder: Path
    name: str

    def run(self) -> Distances:
        """Simulate it, once or twice."""
        run = read_run(self.folder, self.name)
        profile = SLORA[run.pool]
        simulated = simulate(run, profile)
        agreement = compare(run, simulated)
        if self.name in FITTED_TO or run.workload not in CROWDED:
            return Distances(agreement, None)
        return Distances(agreement, compare(simulated, simulate(run, replace(profile, jitter=JITTER))))


def _study(sources: Sources) -> Study:
    if sources.reference is None:
        raise SourceMissing("needs the folder of the measurements: --reference or FAIRLEAD_REFERENCE")
    jobs: dict[str, Job] = {name: Pair(sources.reference, name) for name in run_names(sources.reference)}
    fitted = ", ".join(sorted(FITTED_TO))
    return Study(f"Step times were fitted to {fitted}; every other pair is a prediction.", jobs, _read)


def _read(distances: Mapping[str, Distances]) -> Report:
    ordered = sorted((d.measured for d in distances.values()), key=lambda a: (a.name not in FITTED_TO, a.name))
    rows = [HEADER, *(_row(agreement) for agreement in ordered)]
    fitted = _findings("fitted", [agreement for agreement in ordered if agreement.name in FITTED_TO])
    predicted = _findings("predicted", [agreement for agreement in ordered if agreement.name not in FITTED_TO])
    noise = _noise([(d.measured, d.jittered) for d in distances.values() if d.jittered is not None])
    return Report(rows, findings=[*fitted, *predicted, *noise])


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

    def finding(claim: str, target: str, kept: Sequence[bool], detail: str, because: str = "") -> Finding:
        ours = f"{sum(kept)} of {len(kept)} pairs; {detail}"
        return Finding(f"{kind}: {claim}", target, ours, all(kept), "" if all(kept) else because)

    total = max(a.total for a in agreements)
    missed = [a.name for a in agreements if not a.longest]
    return [
        finding("total time", "within 5 %", [a.total <= TOTAL for a in agreements], f"worst {total:.1%}"),
        finding(
            "service curves, every client at any time",
            "within 10 %",
            [max(a.curves.values()) <= CURVE for a in agreements],
            _clients([(a.curves[c], n) for a in agreements for c, n in a.requests.items()], CURVE),
            SMALL_CLIENTS,
        ),
        finding(
            "mean first-token latency of every client",
            "within 20 %",
            [max(a.waits.values()) <= FIRST_TOKEN for a in agreements],
            _clients([(a.waits[c], n) for a in agreements for c, n in a.requests.items()], FIRST_TOKEN),
            SMALL_CLIENTS,
        ),
        finding(
            "who waits longest", "always right", [a.longest for a in agreements], f"missed: {missed or 'none'}", TIED
        ),
    ]


def _noise(pairs: Sequence[tuple[Agreement, Agreement]]) -> list[Finding]:
    """Of clients by number of requests: how many the prediction misses, and how many the jitter alone moves as far."""
    findings = []
    for least, most in CLASSES if pairs else ():
        ours, noise = (_missed(agreements, least, most) for agreements in zip(*pairs, strict=True))
        # Two standard deviations of a count are not told apart.
        within = all(n <= k + 2 * math.sqrt(max(k, 1)) for n, k in zip(ours[:2], noise[:2], strict=True))
        what = f"{least} to {most} requests" if most < math.inf else f"{least} requests or more"
        findings.append(
            Finding(
                f"predicted, 8 or 27 clients, those with {what}: missed in curve, in first token",
                "as many as by jitter alone, give or take two standard deviations: {} and {} of {}".format(*noise),
                "{} and {} of {}".format(*ours),
                within,
                "" if within else BEYOND_JITTER,
            )
        )
    return findings


def _missed(agreements: Sequence[Agreement], least: int, most: float) -> tuple[int, int, int]:
    """Clients beyond the tolerance in their curve, in their first-token latency, and all of them."""
    clients = [(a.curves[c], a.waits[c]) for a in agreements for c, n in a.requests.items() if least <= n <= most]
    return sum(e > CURVE for e, _ in clients), sum(e > FIRST_TOKEN for _, e in clients), len(clients)


def _clients(errors: Sequence[tuple[float, int]], most: float) -> str:
    many = [error for error, requests in errors if requests >= MANY]
    within = sum(error <= most for error, _ in errors), sum(error <= most for error in many)
    return f"{within[0]} of {len(errors)} clients, {within[1]} of {len(many)} of those with {MANY} requests or more"


ITEMS = (Item("vtc-measured", "VTC's published measurements, 40 pairs of scheduler and workload", _study),)

"""The VTC authors' own measurements, simulated with the same arrivals and lengths, and how far we are off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.agreement import CURVE, FIRST_TOKEN, TOTAL, Agreement, compare
from simulation.fitted import FITTED_TO, SLORA
from simulation.reference import read_run, run_names
from simulation.reproduction.item import Finding, Item, Job, Report, Study
from simulation.sources import SourceMissing, Sources

MANY = 100
SMALL_CLIENTS = (
    "what is missed are small clients of the Arena workload: where they wait a second or two, one admission earlier or "
    "later, ten decoding steps, is more than the tolerance"
)
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
class Pair:
    """A job: one scheduler and workload that were measured."""

    folder: Path
    name: str

    def run(self) -> Agreement:
        """Simulate it."""
        run = read_run(self.folder, self.name)
        return compare(run, SLORA[run.pool])


def _study(sources: Sources) -> Study:
    if sources.reference is None:
        raise SourceMissing("needs the folder of the measurements: --reference or FAIRLEAD_REFERENCE")
    jobs: dict[str, Job] = {name: Pair(sources.reference, name) for name in run_names(sources.reference)}
    fitted = ", ".join(sorted(FITTED_TO))
    return Study(f"Step times were fitted to {fitted}; every other pair is a prediction.", jobs, _read)


def _read(agreements: Mapping[str, Agreement]) -> Report:
    ordered = sorted(agreements.values(), key=lambda a: (a.name not in FITTED_TO, a.name))
    rows = [HEADER, *(_row(agreement) for agreement in ordered)]
    predicted = [agreement for agreement in ordered if agreement.name not in FITTED_TO]
    return Report(rows, findings=[*_findings("fitted", ordered[: -len(predicted)]), *_findings("predicted", predicted)])


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
        finding("who waits longest", "always right", [a.longest for a in agreements], f"missed: {missed or 'none'}"),
    ]


def _clients(errors: Sequence[tuple[float, int]], most: float) -> str:
    many = [error for error, requests in errors if requests >= MANY]
    within = sum(error <= most for error, _ in errors), sum(error <= most for error in many)
    return f"{within[0]} of {len(errors)} clients, {within[1]} of {len(many)} of those with {MANY} requests or more"


ITEMS = (Item("vtc-measured", "VTC's published measurements, 40 pairs of scheduler and workload", _study),)

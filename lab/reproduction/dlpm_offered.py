"""DLPM Figures 1, 9, 10, 11 and 12 with DLPM and the routes as the project offers them, beside the paper's.

`lab.reproduction.beyond` runs Figure 7.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from cli.report import bars
from lab.reproduction.dlpm_quanta import CASES, CLIENT_QUANTA, FIG11, ONE_BAD, ONE_GPU, OTHERS, WORKER_QUANTA, trees
from lab.reproduction.dlpm_system import A10G, CLIENT_QUANTUM, WORKER_QUANTUM, Runs, item, system
from lab.reproduction.dlpm_views import MIX, TREES, half_way_index, worst_response
from lab.reproduction.item import NOT_MEASURED, Finding, Item, Report
from lab.reproduction.measures import fairness, mean_wait
from lab.reproduction.programs import Programs
from lab.reproduction.systems import least_recently_used
from serving.cost import MICRO
from simulation.measures import hit_rate, service_rate
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob
from simulation.spec import ClusterSpec

SEEDS = (1,)
HEADER = ("case", "system", "seed", "service/s", "Jain index", "hit rate", "end s", "gap")
FRONTIER = "DLPM: throughput comparable to LPM, fairness close to VTC"
WHAT_IS_OFFERED = (
    "DLPM and DoubleQ also as the project offers them: prompts are divided into slices, a request waits while a "
    "running one computes its prefix, each client has its part of the KV cache, what waits is evicted last, and "
    "DoubleQ leaves a long queue. With the cache as printed, what was used longest ago is evicted, whoever has used "
    "it. Least delay has this DLPM in its workers; on one GPU the route has no effect"
)
CACHE_AS_PRINTED = ", cache as printed"
WHAT_PARTS_DO = (
    "who is beyond its part evicts its own pages, and its next request waits until one of its own ends, so that fewer "
    "run at a time"
)
SCALES = "DLPM comparable to LPM, VTC below"


@dataclass(frozen=True, slots=True)
class Measure:
    """The figure that a row shows of each system: the mean over the seeds, with so many decimals."""

    name: str
    of: Callable[[SimulationRun], float]
    digits: int


SERVICE = Measure("service units/s", service_rate, 0)
INDEX = Measure("Jain's index of service rates", fairness, 3)
END = Measure("end of all programs, s", lambda run: run.seconds, 0)
HALF_WAY = Measure("Jain's index of actual service, half-way", half_way_index, 2)
WAIT = Measure("highest response time of clients 1 and 2, s", lambda run: worst_response(run, ("1", "2")), 0)
MEAN_WAIT = Measure(
    "mean response time of any client, the worst, s",
    lambda run: max(mean_wait(run.of(client)) for client in run.clients),
    1,
)
OTHERS_WAIT = Measure(
    "mean response time of the others than Tree of Thoughts, the worst, s",
    lambda run: max(mean_wait(run.of(client)) for client in run.clients if client != "tree"),
    1,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload of a figure, the systems that serve it, and what is measured, with what the paper says of it."""

    workload: Programs
    systems: Mapping[str, ClusterSpec]
    measures: Mapping[Measure, str]


def offered(printed: ClusterSpec) -> ClusterSpec:
    """Return the pool with its workers' DLPM, and DoubleQ, as the project offers them."""
    return replace(printed, worker=replace(printed.worker, strict_paper=False), route_strict_paper=False)


def _cached_as_printed(pool: ClusterSpec) -> ClusterSpec:
    return replace(pool, worker=least_recently_used(pool.worker))


def _alone(client_quantum: int) -> dict[str, ClusterSpec]:
    """Return the systems of one GPU, where the route has no effect."""
    printed = system("DoubleQ", 1, A10G, client_quantum=client_quantum)
    others = {name: system(scheduler, 1, A10G) for name, scheduler in ONE_GPU.items() if name != "DLPM"}
    ours = offered(printed)
    return {"DLPM as printed": printed, "DLPM": ours, f"DLPM{CACHE_AS_PRINTED}": _cached_as_printed(ours), **others}


def _routed(workers: int, worker_quanta: Mapping[str, int]) -> dict[str, ClusterSpec]:
    """Return the systems of several GPUs; the keys of `worker_quanta` are added to DoubleQ's name."""
    printed = {name: system("DoubleQ", workers, A10G, worker_quantum=each) for name, each in worker_quanta.items()}
    ours = replace(offered(system("DoubleQ", workers, A10G)), route="least-delay")
    return {
        **{f"DoubleQ as printed{name}": spec for name, spec in printed.items()},
        **{f"DoubleQ{name}": offered(spec) for name, spec in printed.items()},
        "least delay": ours,
        f"least delay{CACHE_AS_PRINTED}": _cached_as_printed(ours),
        **{name: system(name, workers, A10G) for name in OTHERS},
    }


def _figures() -> dict[int, dict[str, Setting]]:
    frontier = {SERVICE: FRONTIER, INDEX: FRONTIER}
    views = {
        END: "DoubleQ first, up to 2 times as fast as VTC and Preble",
        WAIT: "up to 600 s under Preble, far lower under DoubleQ; below VTC's",
        HALF_WAY: "ideal sharing under VTC and DoubleQ, significant unfairness under the others",
    }
    mix = {
        END: "DLPM first",
        OTHERS_WAIT: "significantly increased under LPM",
        MEAN_WAIT: "lowest under DLPM",
        HALF_WAY: "VTC above DLPM",
    }
    default = {"": WORKER_QUANTUM}
    sweep, grows = {f", Q^w = {each:,}": each for each in WORKER_QUANTA}, "grows with Q^w, settles above all others"
    return {
        1: {f"Q^u = {each:,}": Setting(ONE_BAD, _alone(each), frontier) for each in CLIENT_QUANTA},
        11: {case: Setting(load, _alone(CLIENT_QUANTUM), {SERVICE: SCALES}) for case, load in FIG11.items()},
        12: {"mix": Setting(MIX, _alone(CLIENT_QUANTUM), mix)},
        9: {"trees": Setting(TREES, _routed(4, default), views)},
        10: {case: Setting(trees(first), _routed(4, sweep), {SERVICE: grows}) for case, first in CASES.items()},
    }


def _name(setting: str, system_name: str, seed: int) -> str:
    return f"{setting}, {system_name}, seed {seed}"


def _jobs(settings: Mapping[str, Setting]) -> dict[str, SimulationJob]:
    return {
        _name(name, system_name, seed): Scenario(spec, replace(setting.workload, seed=seed))
        for name, setting in settings.items()
        for system_name, spec in setting.systems.items()
        for seed in SEEDS
    }


def _read(settings: Mapping[str, Setting], runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [HEADER]
    findings, charts = [], []
    for name, setting in settings.items():
        found = {each: [runs[_name(name, each, seed)] for seed in SEEDS] for each in setting.systems}
        for system_name, of_seeds in found.items():
            rows += [(name, system_name, seed, *_row(run)) for seed, run in zip(SEEDS, of_seeds, strict=True)]
        for measure, paper in setting.measures.items():
            means = {each: fmean(map(measure.of, of_seeds)) for each, of_seeds in found.items()}
            text = "; ".join(f"{each} {mean:,.{measure.digits}f}" for each, mean in means.items())
            findings.append(Finding(f"{name}: {measure.name}", paper, text, because=NOT_MEASURED))
        findings.append(Finding(f"{name}: what parts of the cache change", "-", _change(found), because=WHAT_PARTS_DO))
        services = [fmean(map(service_rate, of_seeds)) for of_seeds in found.values()]
        charts.append(bars(name, "service units/s", list(found), {"service": services}))
    return Report(rows, charts, findings)


def _change(found: Mapping[str, Sequence[SimulationRun]]) -> str:
    """Return the measures of the system that is also there with the cache as printed, in place of those with it."""
    ours = next(each for each in found if f"{each}{CACHE_AS_PRINTED}" in found)
    pair = found[f"{ours}{CACHE_AS_PRINTED}"], found[ours]
    service, index, hits = ([fmean(map(of, runs)) for runs in pair] for of in (service_rate, fairness, hit_rate))
    return (
        f"{ours}: {service[1] / service[0] - 1:+.1%} service; a hit rate of {hits[1]:.2f} in place of {hits[0]:.2f}; "
        f"Jain's index of service rates {index[1]:.2f} in place of {index[0]:.2f}"
    )


def _row(run: SimulationRun) -> tuple[float, ...]:
    return service_rate(run), fairness(run), hit_rate(run), run.seconds, run.worst_gap / MICRO


def _item(number: int, settings: Mapping[str, Setting]) -> Item:
    seeds = "" if len(SEEDS) == 1 else f"; rows have the mean of {len(SEEDS)} seeds"
    setup = f"As dlpm-fig{number}, with {WHAT_IS_OFFERED}{seeds}."
    name, title = f"dlpm-fig{number}-offered", f"Figure {number} with DLPM and the routes as offered"
    return item(name, title, setup, _jobs(settings), partial(_read, settings))


ITEMS = tuple(_item(number, settings) for number, settings in _figures().items())

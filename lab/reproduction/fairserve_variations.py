"""The influence of benign load, delay threshold, interaction size and arrival order on FairServe's ratios."""

from collections.abc import Callable
from dataclasses import replace

from cli.report import Chart, bars
from lab.reproduction.fairserve_measures import Runs, delayed, is_benign, item, mean_first, prompt, tokens
from lab.reproduction.fairserve_workload import (
    APPS,
    CASE,
    CASE_LIMIT,
    CASE_SECONDS,
    JOBS,
    LIMIT,
    SINGLE,
    SYSTEMS,
    Users,
    population,
    under_all,
)
from lab.reproduction.item import NOT_MEASURED, Finding, Report
from simulation.run import SimulationRun
from simulation.simulation_job import SimulationJob

LIGHT, ALONE, STAGGERED, AS_IS = "a fifth of the GPU", "single calls", "one after the other", "as in Figure 9"
THRESHOLDS = (10.0, 30.0, 60.0)
SETUP = (
    "As the other items but for what each row names. Benign users that need a fifth of the GPU start a third as many "
    "interactions; one after the other: the calls of applications 14, 7 and 12 arrive in a third of the minute each."
)


def _jobs() -> dict[str, SimulationJob]:
    third = CASE_SECONDS / 3
    staggered = tuple(
        replace(user, per_minute=3 * user.per_minute, start=number * third, stop=(number + 1) * third)
        for number, user in enumerate(CASE)
    )
    studies = {
        AS_IS: JOBS,
        LIGHT: under_all(population(0.05), LIMIT),
        ALONE: under_all(population(0.15, tuple(replace(app, calls=SINGLE) for app in APPS)), LIMIT),
        STAGGERED: under_all(Users(staggered, CASE_SECONDS), CASE_LIMIT),
    }
    return {f"{study}, {name}": job for study, jobs in studies.items() for name, job in jobs.items()}


def _of(runs: Runs, study: str) -> dict[str, SimulationRun]:
    return {name: runs[f"{study}, {name}"] for name in SYSTEMS}


def _benign(run: SimulationRun) -> SimulationRun:
    return replace(run, records=tuple(record for record in run.records if is_benign(record.client)))


def _delays(runs: Runs, seconds: float) -> Finding:
    shares = {name: delayed(run, seconds) for name, run in _of(runs, LIGHT).items()}
    ours = shares["FS (W+I)"]
    ratios = ", ".join(f"{name} {share / ours:.2f} times" for name, share in shares.items() if share > ours > 0)
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items()) + (f": {ratios}" if ratios else "")
    claim = f"users delayed by more than {seconds:.0f} s, benign users need {LIGHT}"
    return Finding(claim, "FS 0.93 %; VTC 10.67 and RPM 93 times as many", text, because=NOT_MEASURED)


def _by_app(claim: str, paper: str, value: Callable[[str], float]) -> Finding:
    return Finding(claim, paper, ", ".join(f"{value(app.name):.2f}" for app in APPS), because=NOT_MEASURED)


def _read(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("study", "system", "app", "prompt tokens/s", "mean TTFT, benign, s")]
    for study in (AS_IS, LIGHT, ALONE):
        for name, run in _of(runs, study).items():
            benign = _benign(run)
            rows += [(study, name, app.name, _rate(benign, app.name), _first(benign, app.name)) for app in APPS]
    as_is, single = ({n: _benign(r) for n, r in _of(runs, study).items()} for study in (AS_IS, ALONE))
    served = {name: sum(r.completed for r in run.records) / len(run.records) for name, run in as_is.items()}
    findings = [_delays(runs, seconds) for seconds in THRESHOLDS]
    findings += [
        _by_app(
            "throughput of benign users by application, FS (W+I) over VTC",
            "1.03 to 1.75",
            lambda app: _rate(as_is["FS (W+I)"], app) / _rate(as_is["VTC"], app),
        ),
        _by_app(
            "the same, FS (W+I) over RPM",
            "1.03 to 1.75",
            lambda app: _rate(as_is["FS (W+I)"], app) / _rate(as_is["RPM"], app),
        ),
        _by_app(
            "first-token latency by application, VTC over FS (W+I), interactions of one call",
            "1.03 to 1.06",
            lambda app: _first(single["VTC"], app) / _first(single["FS (W+I)"], app),
        ),
        _by_app(
            "throughput of benign users by application, FS (W+I) over VTC, interactions of one call",
            "1.03 to 1.75",
            lambda app: _rate(single["FS (W+I)"], app) / _rate(single["VTC"], app),
        ),
        Finding(
            "requests served, of benign users",
            "FS (W+I) 96.67 %, RPM 51.52 %",
            f"FS (W+I) {served['FS (W+I)']:.2%}, RPM {served['RPM']:.2%}",
            because="the paper counts all users together, as fairserve-table3 does",
        ),
        *(_case(runs, app, paper) for app, paper in CASES.items()),
    ]
    return Report(rows, _charts(runs), findings)


def _charts(runs: Runs) -> list[Chart]:
    shares = {f"{seconds:.0f} s": [delayed(r, seconds) for r in _of(runs, LIGHT).values()] for seconds in THRESHOLDS}
    charts = [bars(f"users delayed, benign users need {LIGHT}", "share of users", list(SYSTEMS), shares)]
    names = [app.name for app in APPS]
    for study in (AS_IS, LIGHT, ALONE):
        rates = {name: [_rate(_benign(run), app) for app in names] for name, run in _of(runs, study).items()}
        charts.append(bars(f"throughput of benign users, {study}", "prompt tokens/s", names, rates))
    names = [user.name for user in CASE]
    return [*charts, bars(f"applications {STAGGERED}", "prompt tokens/s", names, _staggered(runs))]


def _staggered(runs: Runs) -> dict[str, list[float]]:
    return {
        name: [tokens(run, prompt, user.name, CASE_SECONDS) for user in CASE]
        for name, run in _of(runs, STAGGERED).items()
    }


CASES = {"application 12": "RPM 5; 124, 125, 128", "application 7": "RPM 860; 374, 390, 359"}


def _case(runs: Runs, app: str, paper: str) -> Finding:
    rates = {name: tokens(run, prompt, app, CASE_SECONDS) for name, run in _of(runs, STAGGERED).items()}
    text = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    return Finding(f"prompt tokens/s of {app}, applications {STAGGERED}", paper, text, because=NOT_MEASURED)


def _rate(run: SimulationRun, app: str) -> float:
    return tokens(run, prompt, app)


def _first(run: SimulationRun, app: str) -> float:
    return mean_first([record for record in run.records if record.app == app])


ITEMS = (item("fairserve-variations", "section 5, what it depends on", _jobs(), _read, SETUP),)

"""FairServe Table 4: three applications of different shapes within one minute."""

from cli.report import bars
from lab.reproduction.fairserve_measures import Runs, item, prompt, refused, tokens, wasted
from lab.reproduction.fairserve_workload import CASE, CASE_JOBS, CASE_SECONDS, CASE_SETUP
from lab.reproduction.item import Finding, Report

NAMES = [user.name for user in CASE]
LIGHT, HEAVY = "application 12", "application 7"
LIGHT_GAIN = 24  # ratio of the light application's throughput to that under RPM
OTHERS = ("VTC", "FS (W)", "FS (W+I)")
Rates = dict[str, dict[str, float]]  # prompt tokens per second by system and application


def _table4(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("system", "app", "requests served", "prompt tokens/s", "wasted tokens")]
    rates: Rates = {name: {app: tokens(run, prompt, app, CASE_SECONDS) for app in NAMES} for name, run in runs.items()}
    for name, run in runs.items():
        for app in NAMES:
            done = sum(r.completed and r.ended <= CASE_SECONDS for r in run.of(app))
            rows.append((name, app, done, rates[name][app], wasted(run)))
    findings = [_light(rates), _heavy(rates), _wasted(runs)]
    shown = {name: list(by_app.values()) for name, by_app in rates.items()}
    return Report(rows, [bars("prompt throughput", "tokens/s", NAMES, shown)], findings)


def _light(rates: Rates) -> Finding:
    values = {name: by_app[LIGHT] for name, by_app in rates.items()}
    least = min(values[name] for name in OTHERS)
    return Finding(
        f"prompt tokens/s of the light {LIGHT}",
        f"RPM 5; VTC 124, FS (W) 125, FS (W+I) 128: {LIGHT_GAIN} times as much",
        ", ".join(f"{name} {value:.0f}" for name, value in values.items()),
        least >= LIGHT_GAIN / 2 * values["RPM"] and least > 0,
        f"each of the others at least {LIGHT_GAIN // 2} times RPM's, half the paper's ratio",
        _shares_under_rpm(rates),
    )


def _heavy(rates: Rates) -> Finding:
    values = {name: by_app[HEAVY] for name, by_app in rates.items()}
    return Finding(
        f"prompt tokens/s of the heavy {HEAVY}",
        "RPM 860; 374, 390 and 359 under the others",
        ", ".join(f"{name} {value:.0f}" for name, value in values.items()),
        values["RPM"] >= 1.5 * max(values[name] for name in OTHERS),
        "RPM at least 1.5 times each of the others",
        _shares_under_rpm(rates),
    )


def _shares_under_rpm(rates: Rates) -> str:
    shares = []
    for app in NAMES:
        others = sum(rates[name][app] for name in OTHERS) / len(OTHERS)
        shares.append(f"{app} {rates['RPM'][app] / others:.2f}" if others else f"{app}, which the others do not serve")
    return (
        f"under RPM each gets of what the others give it on average: {', '.join(shares)}; fairserve-variations has the "
        "three send one after the other"
    )


def _wasted(runs: Runs) -> Finding:
    waste = {name: wasted(run) for name, run in runs.items()}
    calls = ", ".join(f"{name} {len(refused(run))}" for name, run in runs.items())
    return Finding(
        "wasted tokens",
        "VTC 3,224, FS (W+I) 461",
        ", ".join(f"{name} {value:,}" for name, value in waste.items()),
        2 * waste["FS (W+I)"] <= waste["VTC"] and waste["VTC"] > 0,
        "VTC more than 0, FS (W+I) at most half of it",
        f"interactions without a final answer: {calls}; calls do not time out here, as the paper's did",
    )


ITEMS = (item("fairserve-table4", "Table 4: three applications", CASE_JOBS, _table4, CASE_SETUP),)

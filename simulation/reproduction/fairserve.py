"""FairServe section 5: throttling and scheduling among applications of different shapes.

The paper's workload is a day of an assistant's production traffic and not public. Here it is made from what the paper
prints: the sizes of interactions and their tokens (Table 2), the shapes of three applications (Table 4).
"""

from collections.abc import Callable, Mapping
from statistics import fmean

from simulation.reproduction.fairserve_workload import (
    APPS,
    CASE,
    CASE_JOBS,
    CASE_SECONDS,
    CASE_SETUP,
    JOBS,
    LATE,
    SECONDS,
    SETUP,
)
from simulation.reproduction.item import Chart, Finding, Item, Job, Line, Report, Study
from simulation.reproduction.run import Record, Run
from simulation.sources import Sources

Runs = Mapping[str, Run]


def _interactions(run: Run) -> dict[str, list[Record]]:
    chains: dict[str, list[Record]] = {}
    for record in run.records:
        chains.setdefault(record.interaction, []).append(record)
    return chains


def _cut(run: Run) -> list[list[Record]]:
    """Interactions that had begun when a call of theirs was refused."""
    return [chain for chain in _interactions(run).values() if chain[0].completed and not chain[-1].completed]


def _refused(run: Run) -> int:
    return sum(not chain[-1].completed for chain in _interactions(run).values())


def _wasted(run: Run) -> int:
    """Tokens of calls whose interaction never gave its final answer."""
    return sum(r.input_tokens + r.output_tokens for chain in _cut(run) for r in chain if r.completed)


def _throttled_users(run: Run) -> list[str]:
    return sorted({record.client for record in run.records if not record.completed})


def delayed(run: Run, seconds: float = LATE) -> float:
    """Share of the benign users with a call that waited longer than that in a queue."""
    benign = [client for client in run.clients if client.startswith("user")]
    late = {r.client for r in run.records if r.admitted is not None and r.admitted - r.arrival > seconds}
    return sum(client in late for client in benign) / len(benign)


def _fig8(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [
        ("system", "interactions refused", "cut in the middle", "wasted tokens", "users throttled", "users delayed")
    ]
    for name, run in runs.items():
        users = len(_throttled_users(run))
        rows.append((name, _refused(run), len(_cut(run)), _wasted(run), users, delayed(run)))
    rpm, ours = runs["RPM"], runs["FS (W+I)"]
    innocent = [[u for u in _throttled_users(run) if u.startswith("user")] for run in (rpm, ours)]
    delays = {name: delayed(run) for name, run in runs.items()}
    findings = [
        Finding(
            "interactions cut in the middle: RPM against FS (W+I)",
            "RPM throttles 21.15 times as many; FS none in execution",
            f"{len(_cut(rpm))} and {len(_cut(ours))}; refused in all {_refused(rpm)} and {_refused(ours)}",
            len(_cut(rpm)) > 0 == len(_cut(ours)),
        ),
        Finding(
            "wasted tokens",
            "RPM 15,660 on average, FS (W+I) 0",
            f"RPM {_wasted(rpm):,}, FS (W+I) {_wasted(ours):,}",
            _wasted(rpm) > 0 == _wasted(ours),
        ),
        Finding(
            "users throttled who are not abusive",
            "RPM throttles users of very low request rates; FS only those well above",
            f"RPM {len(innocent[0])}, FS (W+I) {len(innocent[1])} of 200",
            len(innocent[1]) < len(innocent[0]),
        ),
        Finding(
            "users delayed",
            "FS 0.93 %; VTC 10.67 and RPM 93 times as many",
            ", ".join(f"{name} {share:.1%}" for name, share in delays.items()),
            delays["FS (W+I)"] < min(delays["VTC"], delays["RPM"]),
            "the order; the ratios follow from the benign load and from who counts as delayed (fairserve-variations)",
        ),
    ]
    return Report(rows, (), findings)


def mean_first(records: list[Record]) -> float:
    """First-token latency of those that were answered."""
    return fmean(r.first - r.arrival for r in records if r.first is not None)


def tokens(run: Run, value: Callable[[Record], int], app: str | None = None, seconds: float = SECONDS) -> float:
    """Per second, of calls that were answered within the first `seconds`."""
    within = (r for r in run.records if r.completed and r.ended <= seconds and app in (None, r.app))
    return sum(value(r) for r in within) / seconds


def _prompt(record: Record) -> int:
    return record.input_tokens


def _output(record: Record) -> int:
    return record.output_tokens


def _fig9(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("system", "app", "prompt tokens/s", "output tokens/s", "mean TTFT, benign, s")]
    served: dict[tuple[str, str], tuple[float, float]] = {}
    for name, run in runs.items():
        for app in APPS:
            benign = [r for r in run.records if r.app == app.name and r.client.startswith("user")]
            rate, first = tokens(run, _prompt, app.name), mean_first(benign)
            served[name, app.name] = rate, first
            rows.append((name, app.name, rate, tokens(run, _output, app.name), first))
    findings = []
    for other in ("VTC", "RPM"):
        rates = [served["FS (W+I)", app.name][0] / served[other, app.name][0] for app in APPS]
        waits = [served[other, app.name][1] / served["FS (W+I)", app.name][1] for app in APPS]
        findings += [
            Finding(
                f"throughput by application, FS (W+I) over {other}",
                "1.03 to 1.75",
                ", ".join(f"{rate:.2f}" for rate in rates),
                min(rates) > 0.97 and max(rates) > 1.03,
                "" if min(rates) > 0.97 else CALLS_FIRST,
            ),
            Finding(
                f"first-token latency of benign users by application, {other} over FS (W+I)",
                "1.03 to 1.06",
                ", ".join(f"{wait:.2f}" for wait in waits),
                min(waits) > 1.0,
                "" if min(waits) > 1.0 else SHEDS[other],
            ),
        ]
    lines = [Line(name, range(len(APPS)), [served[name, app.name][0] for app in APPS]) for name in runs]
    return Report(rows, [Chart("prompt tokens/s by application", "application", "tokens/s", lines)], findings)


CALLS_FIRST = (
    "WSC lets calls inside an interaction go first, and the applications of single calls pay; where every interaction "
    "is one call, nobody does (fairserve-variations)"
)
SHEDS = {
    "VTC": CALLS_FIRST,
    "RPM": "RPM sheds more load, as the paper's Table 3 shows, too: there its first tokens are the fastest",
}


KEEPS_CALLING = (
    "abusers send two thirds of the requests here, and refused calls count towards a user's window under OIT: who "
    "keeps calling gets nothing, where a fixed window lets six a minute in. Of benign users' requests FS serves more "
    "(fairserve-variations)"
)
ARRIVAL_ORDER = (
    "all three send all the time here, and order of arrival gives each its share. Where application 14's calls come "
    "first, RPM starves the light one, and VTC and WSC do not (fairserve-variations)"
)


def _table3(runs: Runs) -> Report:
    header = ("system", "prompt tokens/s", "output tokens/s", "TTFT s", "requests %", "interactions %", "users %")
    rows: list[tuple[object, ...]] = [header]
    shares = {}
    for name, run in runs.items():
        chains = _interactions(run)
        begun = [chain for chain in chains.values() if chain[0].completed]
        requests = sum(r.completed for r in run.records) / len(run.records)
        interactions = sum(chain[-1].completed for chain in begun) / len(begun)
        users = len({c[0].client for c in begun if c[-1].completed}) / len({c[0].client for c in chains.values()})
        shares[name] = requests, interactions, users
        rates = tokens(run, _prompt), tokens(run, _output)
        rows.append((name, *rates, mean_first(list(run.records)), 100 * requests, 100 * interactions, 100 * users))
    ours, rpm = shares["FS (W+I)"], shares["RPM"]
    findings = [
        Finding(
            "interactions that began and got their final answer",
            "FS (W+I) 100 %, RPM 85.36 %",
            f"FS (W+I) {ours[1]:.2%}, RPM {rpm[1]:.2%}",
            ours[1] == 1.0 > rpm[1],
        ),
        Finding(
            "requests served",
            "FS (W+I) 96.67 %, RPM 51.52 %",
            f"FS (W+I) {ours[0]:.2%}, RPM {rpm[0]:.2%}",
            ours[0] > rpm[0],
            "" if ours[0] > rpm[0] else KEEPS_CALLING,
        ),
        Finding(
            "users served",
            "FS (W+I) 100 %, RPM 87.64 %",
            f"FS (W+I) {ours[2]:.2%}, RPM {rpm[2]:.2%}",
            ours[2] >= rpm[2],
        ),
        Finding(
            "prompt and output tokens/s: RPM, VTC, FS (W), FS (W+I)",
            "11,155, 12,190, 12,217, 12,248 and 183, 263, 267, 268",
            "; ".join(f"{row[1]:,.0f} and {row[2]:,.0f}" for row in rows[1:]),
            rows[4][1] > rows[1][1],  # type: ignore[operator]
        ),
    ]
    return Report(rows, (), findings)


def _table4(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("system", "app", "requests served", "prompt tokens/s", "wasted tokens")]
    rates: dict[tuple[str, str], float] = {}
    for name, run in runs.items():
        for user in CASE:
            done = sum(r.completed and r.ended <= CASE_SECONDS for r in run.of(user.name))
            rates[name, user.name] = tokens(run, _prompt, user.name, CASE_SECONDS)
            rows.append((name, user.name, done, rates[name, user.name], _wasted(run)))
    light = {name: rates[name, "application 12"] for name in runs}
    heavy = {name: rates[name, "application 7"] for name in runs}
    light_gains = min(light["VTC"], light["FS (W)"], light["FS (W+I)"]) > 1.5 * light["RPM"]
    heavy_loses = heavy["RPM"] > max(heavy["VTC"], heavy["FS (W)"], heavy["FS (W+I)"])
    findings = [
        Finding(
            "prompt tokens/s of the light application 12",
            "RPM 5; VTC 124, FS (W) 125, FS (W+I) 128: 24 times as much",
            ", ".join(f"{name} {value:.0f}" for name, value in light.items()),
            light_gains,
            "" if light_gains else ARRIVAL_ORDER,
        ),
        Finding(
            "prompt tokens/s of the heavy application 7",
            "RPM 860; 374, 390 and 359 under the others",
            ", ".join(f"{name} {value:.0f}" for name, value in heavy.items()),
            heavy_loses,
            "" if heavy_loses else ARRIVAL_ORDER,
        ),
        Finding(
            "wasted tokens",
            "VTC 3,224, FS (W+I) 461",
            ", ".join(f"{name} {_wasted(run):,}" for name, run in runs.items()),
            _wasted(runs["FS (W+I)"]) <= _wasted(runs["RPM"]),
        ),
    ]
    return Report(rows, (), findings)


def item(name: str, figure: str, jobs: Mapping[str, Job], read: Callable[[Runs], Report], setup: str = SETUP) -> Item:
    """An item that needs no data."""

    def study(_sources: Sources) -> Study:
        return Study(setup, jobs, read)

    return Item(name, f"FairServe {figure}", study)


ITEMS = (
    item("fairserve-fig8", "Figure 8: throttling, wasted tokens, queueing delays", JOBS, _fig8),
    item("fairserve-fig9", "Figure 9: throughput and latency by application", JOBS, _fig9),
    item("fairserve-table3", "Table 3: throughput, latency, service provided", JOBS, _table3),
    item("fairserve-table4", "Table 4: three applications", CASE_JOBS, _table4, CASE_SETUP),
)

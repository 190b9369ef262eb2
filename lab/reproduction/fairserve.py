"""FairServe section 5: throttling and scheduling for applications of different shapes.

The paper's workload, a day of an assistant's production traffic, is not public. Here it is made from the printed data:
the sizes of interactions and their tokens (Table 2), and the shapes of three applications (Table 4).
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from cli.report import bars
from lab.reproduction.fairserve_measures import (
    Runs,
    cut,
    delayed,
    interactions,
    is_benign,
    item,
    mean_first,
    normal,
    output,
    prompt,
    refused,
    sent,
    throttled_users,
    tokens,
    wasted,
)
from lab.reproduction.fairserve_workload import APPS, JOBS, SETUP
from lab.reproduction.item import Finding, Report
from simulation.run import CallResult, SimulationRun

NAMES = [app.name for app in APPS]
FEWER, EARLIER_VTC, EARLIER_RPM = 21.15, 10.67, 93  # the paper's ratios
TOKENS_OF_PAPER = "11,155, 12,190, 12,217, 12,248 and 183, 263, 267, 268"


def _fig8(runs: Runs) -> Report:
    columns: dict[str, list[float]] = {
        "interactions refused": [len(refused(run)) for run in runs.values()],
        "cut in the middle": [len(cut(run)) for run in runs.values()],
        "wasted tokens": [wasted(run) for run in runs.values()],
        "users throttled": [len(throttled_users(run)) for run in runs.values()],
        "users delayed": [delayed(run) for run in runs.values()],
    }
    rows: list[tuple[object, ...]] = [("system", *columns), *zip(runs, *columns.values(), strict=True)]
    units = ("interactions", "interactions", "tokens", "users", "share of users")
    charts = [
        bars(what, unit, list(runs), {"all users": values})
        for (what, values), unit in zip(columns.items(), units, strict=True)
    ]
    rpm, vtc, ours = runs["RPM"], runs["VTC"], runs["FS (W+I)"]
    findings = [
        Finding(
            "interactions cut in the middle of execution",
            "RPM some, FS (W+I) none",
            f"RPM {len(cut(rpm))}, FS (W+I) {len(cut(ours))}",
            len(cut(rpm)) > 0 == len(cut(ours)),
            "RPM more than 0, FS (W+I) 0",
            f"of {len(interactions(rpm))} and {len(interactions(ours))} in all",
        ),
        _throttled_in_all(rpm, ours),
        Finding(
            "wasted tokens",
            "RPM 15,660 on average, VTC 77,200, FS (W+I) 0; it does not say of what an average",
            f"RPM {wasted(rpm):,}, VTC {wasted(vtc):,}, FS (W+I) {wasted(ours):,}, each of the whole run",
            wasted(rpm) > 0 < wasted(vtc) and wasted(ours) == 0,
            "RPM and VTC more than 0, FS (W+I) 0",
            f"they were spent on interactions that were cut, of which there are {len(cut(rpm))}, {len(cut(vtc))} and "
            f"{len(cut(ours))}; VTC throttles no user, and calls do not time out here",
        ),
        _throttled_users(runs),
        _delayed_users(runs),
    ]
    return Report(rows, charts, findings)


def _throttled_in_all(rpm: SimulationRun, ours: SimulationRun) -> Finding:
    counts = [len(refused(run)) for run in (rpm, ours)]
    benign = [sum(is_benign(chain[0].client) for chain in refused(run)) for run in (rpm, ours)]
    return Finding(
        "interactions throttled in all",
        f"RPM {FEWER} times as many as FS (W+I)",
        f"RPM {counts[0]}, FS (W+I) {counts[1]}",
        counts[0] >= FEWER / 2 * counts[1],
        f"RPM at least {FEWER / 2:.1f} times as many, half the paper's ratio",
        f"of these {counts[0] - benign[0]} and {counts[1] - benign[1]} are abusers', {benign[0]} and {benign[1]} "
        "benign users'",
    )


def _throttled_users(runs: Runs) -> Finding:
    """Judge the throttled users by their rates under VTC, which throttles no user, so that each one sends all of its
    calls."""
    calls, most = sent(runs["VTC"]), normal(runs["VTC"])
    users = {name: throttled_users(runs[name]) for name in ("RPM", "FS (W+I)")}
    usual = {name: [user for user in found if calls[user] <= most] for name, found in users.items()}
    ours = ", ".join(
        f"{name} {len(found)}, {sum(map(is_benign, found))} of them benign, {len(usual[name])} in the normal range"
        for name, found in users.items()
    )
    return Finding(
        "users throttled",
        "RPM throttles users of very low request rates; FS (W+I) only those well above the normal range",
        ours,
        len(usual["RPM"]) > 0 == len(usual["FS (W+I)"]),
        f"RPM some in the normal range, FS (W+I) none; normal is what 95 % of benign users send, {most:.0f} calls",
        "in the normal range, with their calls: "
        + "; ".join(
            f"{name} {', '.join(f'{u} ({calls[u]})' for u in found) or 'none'}" for name, found in usual.items()
        ),
    )


def _delayed_users(runs: Runs) -> Finding:
    shares = {name: delayed(run) for name, run in runs.items()}
    ours = shares["FS (W+I)"]
    enough = shares["VTC"] >= EARLIER_VTC / 2 * ours and shares["RPM"] >= EARLIER_RPM / 2 * ours
    ratios = [f"{name} {shares[name] / ours:.2f} times" for name in ("VTC", "RPM") if ours > 0]
    return Finding(
        "users delayed",
        f"FS 0.93 %; VTC {EARLIER_VTC} and RPM {EARLIER_RPM} times as many",
        ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
        max(shares.values()) > 0 and enough,
        f"VTC at least {EARLIER_VTC / 2:.1f} and RPM {EARLIER_RPM / 2:.1f} times as many, half the paper's ratios",
        f"{' and '.join(ratios) or 'none under FS (W+I)'}; see fairserve-variations for the benign load and for the "
        "delay threshold",
    )


def _fig9(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("system", "app", "prompt tokens/s", "output tokens/s", "mean TTFT, benign, s")]
    rates: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    for name, run in runs.items():
        rates[name] = [tokens(run, prompt, app) for app in NAMES]
        firsts[name] = [mean_first([r for r in run.records if r.app == app and is_benign(r.client)]) for app in NAMES]
        for app, rate, first in zip(NAMES, rates[name], firsts[name], strict=True):
            rows.append((name, app, rate, tokens(run, output, app), first))
    findings = []
    for other in ("VTC", "RPM"):
        gains = [ours / theirs for ours, theirs in zip(rates["FS (W+I)"], rates[other], strict=True)]
        waits = [theirs / ours for ours, theirs in zip(firsts["FS (W+I)"], firsts[other], strict=True)]
        claim = f"throughput by application, FS (W+I) over {other}"
        findings.append(_by_app(claim, "1.03 to 1.75: higher in all", gains, runs["FS (W+I)"]))
        claim = f"first-token latency of benign users by application, {other} over FS (W+I)"
        findings.append(_by_app(claim, "1.03 to 1.06: lower under FS in all", waits, runs["FS (W+I)"]))
    charts = [
        bars("throughput", "prompt tokens/s", NAMES, rates),
        bars("first-token latency of benign users", "seconds", NAMES, firsts),
    ]
    return Report(rows, charts, findings)


def _by_app(claim: str, paper: str, ratios: Sequence[float], run: SimulationRun) -> Finding:
    missed = [f"{app} ({ratio:.2f})" for app, ratio in zip(NAMES, ratios, strict=True) if ratio <= 1]
    sizes = ", ".join(f"{_calls_each(run, app):.1f}" for app in NAMES)
    return Finding(
        claim,
        paper,
        ", ".join(f"{ratio:.2f}" for ratio in ratios),
        not missed,
        "above 1 in every application",
        f"not in {', '.join(missed)}; interactions of {', '.join(NAMES)} have {sizes} calls on average, and WSC lets "
        "calls inside an interaction go first",
    )


def _calls_each(run: SimulationRun, app: str) -> float:
    """Return the mean calls per completed interaction of this application."""
    sizes = [len(c) for c in interactions(run).values() if c[0].app == app and c[-1].completed]
    return fmean(sizes) if sizes else 0.0


def _table3(runs: Runs) -> Report:
    header = ("system", "prompt tokens/s", "output tokens/s", "TTFT s", "requests %", "interactions %", "users %")
    rows: list[tuple[object, ...]] = [header]
    shares = {name: _shares(run) for name, run in runs.items()}
    rates = {name: (tokens(run, prompt), tokens(run, output)) for name, run in runs.items()}
    for name, run in runs.items():
        rows.append((name, *rates[name], mean_first(run.records), *(100 * share for share in shares[name])))
    gains = [[rates["FS (W+I)"][phase] / rates[name][phase] for phase in (0, 1)] for name in ("VTC", "RPM")]
    findings = [
        _served("interactions that began and got their final answer", ("100", "85.36"), 1, shares, ""),
        _served("requests served", ("96.67", "51.52"), 0, shares, _who_is_served(runs)),
        _served("users served", ("100", "87.64"), 2, shares, ""),
        Finding(
            "prompt and output tokens/s: RPM, VTC, FS (W), FS (W+I)",
            TOKENS_OF_PAPER,
            "; ".join(f"{prompts:,.0f} and {outputs:,.0f}" for prompts, outputs in rates.values()),
            min(map(min, gains)) > 1,
            "FS (W+I) above VTC and above RPM in both",
            "FS (W+I) over VTC and over RPM: " + "; ".join(f"{a:.2f} and {b:.2f}" for a, b in gains),
        ),
    ]
    of_both = {name: [100 * share for share in shares[name]] for name in ("RPM", "FS (W+I)")}
    charts = [
        bars("prompt throughput", "tokens/s", list(runs), {"all users": [rate for rate, _ in rates.values()]}),
        bars("output throughput", "tokens/s", list(runs), {"all users": [rate for _, rate in rates.values()]}),
        bars("service provided", "% served", ("requests", "interactions", "users"), of_both),
    ]
    return Report(rows, charts, findings)


def _shares(run: SimulationRun) -> tuple[float, float, float]:
    """Return three shares: requests answered, begun interactions completed, users with a completed interaction."""
    chains = interactions(run)
    begun = [chain for chain in chains.values() if chain[0].completed]
    ended = [chain for chain in begun if chain[-1].completed]
    users = len({c[0].client for c in ended}) / len({c[0].client for c in chains.values()})
    return _answered(run.records), len(ended) / len(begun), users


def _answered(records: Sequence[CallResult]) -> float:
    return sum(record.completed for record in records) / len(records)


def _served(
    claim: str, paper: tuple[str, str], kind: int, shares: Mapping[str, Sequence[float]], because: str
) -> Finding:
    ours, rpm = shares["FS (W+I)"][kind], shares["RPM"][kind]
    whole = paper[0] == "100"
    return Finding(
        claim,
        f"FS (W+I) {paper[0]} %, RPM {paper[1]} %",
        f"FS (W+I) {ours:.2%}, RPM {rpm:.2%}",
        ours > rpm and (ours == 1.0 or not whole),
        "FS (W+I) 100 %, RPM less" if whole else "FS (W+I) above RPM",
        because or f"FS (W+I) leaves out {1 - ours:.2%}, RPM {1 - rpm:.2%}",
    )


def _who_is_served(runs: Runs) -> str:
    parts: list[tuple[str, Callable[[str], bool]]] = [
        ("benign users", is_benign),
        ("abusers", lambda user: not is_benign(user)),
    ]
    texts = []
    for who, chosen in parts:
        records = {name: [r for r in runs[name].records if chosen(r.client)] for name in ("FS (W+I)", "RPM")}
        ours, rpm = (f"{_answered(found):.2%} of {len(found)}" for found in records.values())
        texts.append(f"of {who}' requests FS (W+I) serves {ours}, RPM {rpm}")
    return "; ".join(texts)


ITEMS = (
    item("fairserve-fig8", "Figure 8: throttling, wasted tokens, queueing delays", JOBS, _fig8, SETUP),
    item("fairserve-fig9", "Figure 9: throughput and latency by application", JOBS, _fig9, SETUP),
    item("fairserve-table3", "Table 3: throughput, latency, service provided", JOBS, _table3, SETUP),
)

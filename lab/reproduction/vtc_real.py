"""VTC section 5.3 and B.2: response times and throughput of 27 clients of Chatbot Arena on an A10G."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from cli.report import Chart, ChartLine
from lab.reproduction.arena import LIMITS, SECONDS, item
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import T, mean_wait, response_times
from simulation.measures import tokens_per_second
from simulation.run import CallResult, SimulationRun

Runs = Mapping[str, SimulationRun]


def _fig11(runs: Runs) -> Report:
    """Report the demand, which does not depend on the scheduler."""
    records, times = runs["VTC"].records, range(0, SECONDS + 1, T // 3)
    rows: list[tuple[object, ...]] = [("client", "second", "requests per minute")]
    lines = []
    for client in _by_volume(runs["VTC"]):
        rates = [_per_minute([r for r in records if r.client == client], time) for time in times]
        lines.append(ChartLine(client, times, rates))
        rows += [(client, time, rate) for time, rate in zip(times, rates, strict=True)]
    total = [_per_minute(records, time) for time in times]
    sent = sorted(Counter(record.client for record in records).values(), reverse=True)
    loud, quiet = sum(sent[:2]) / sum(sent), sum(sent[len(sent) // 2 :]) / sum(sent)
    low, high, rate = min(total[3:-3]), max(total), 60 * sum(sent) / SECONDS
    lengths = fmean(r.input_tokens for r in records), fmean(r.output_tokens for r in records)
    findings = [
        Finding(
            "requests by client",
            "a few of 27 send many more than others",
            f"{len(sent)} clients: the first two send {loud:.0%}, the last half {quiet:.0%}",
            loud >= 2 * quiet,
            "the first two send at least 2 times what the last half does",
            f"{loud / quiet:.2f} times",
        ),
        Finding(
            "total request rate",
            "highly dynamic",
            f"{low:.0f} to {high:.0f} within a minute",
            high >= 1.5 * low,
            "the highest at least 1.5 times the lowest",
            f"{high / low:.2f} times",
        ),
        Finding(
            "mean request rate",
            "210 per minute",
            f"{rate:.0f} per minute",
            abs(rate / 210 - 1) <= 0.05,
            "within 5 %",
            f"the authors' published runs have {len(records):,} requests in {SECONDS} s",
        ),
        Finding(
            "mean input and output tokens",
            "136 and 256",
            f"{lengths[0]:.0f} and {lengths[1]:.0f}",
            max(abs(lengths[0] / 136 - 1), abs(lengths[1] / 256 - 1)) <= 0.05,
            "each within 5 %",
            f"{lengths[0] / 136 - 1:+.0%} and {lengths[1] / 256 - 1:+.0%}",
        ),
    ]
    charts = [
        Chart("request rate by client", "seconds", "requests per minute", lines),
        Chart("total request rate", "seconds", "requests per minute", [ChartLine("all clients", times, total)]),
    ]
    return Report(rows, charts, findings)


def _per_minute(records: Sequence[CallResult], time: float) -> float:
    """Return the arrivals within T, half a minute, of `time`."""
    return sum(time - T <= record.arrival < time + T for record in records)


def _by_volume(run: SimulationRun) -> list[str]:
    return sorted(run.clients, key=lambda client: (-len(run.of(client)), client))


def _selected(run: SimulationRun) -> list[str]:
    """Return the two clients with most calls and two of medium volume: the 13th and 14th of 27, as in the paper."""
    ordered = _by_volume(run)
    return [*ordered[:2], *ordered[12:14]]


def _responses(runs: Runs, names: tuple[str, ...], clients: list[str]) -> tuple[list[tuple[object, ...]], list[Chart]]:
    rows: list[tuple[object, ...]] = [("scheduler", "client", "second", "mean first-token latency")]
    charts = []
    for name in names:
        lines = []
        for client in clients:
            xs, ys = response_times(runs[name].of(client), SECONDS)
            lines.append(ChartLine(client, xs, ys))
            rows += [(name, client, x, y) for x, y in zip(xs, ys, strict=True)]
        charts.append(Chart(f"{name}: response time", "seconds", "seconds to first token", lines))
    return rows, charts


def _fig12(runs: Runs) -> Report:
    clients = _selected(runs["VTC"])
    rows, charts = _responses(runs, ("FCFS", "VTC"), clients)
    waits = {
        name: [max(response_times(runs[name].of(client), SECONDS)[1]) for client in clients] for name in ("FCFS", "VTC")
    }
    ours = "; ".join(f"{name} {', '.join(f'{wait:.1f}' for wait in values)} s" for name, values in waits.items())
    ratios = [vtc / fcfs for vtc, fcfs in zip(waits["VTC"], waits["FCFS"], strict=True)]
    finding = Finding(
        "highest response times: two clients that send most, two of medium volume",
        "FCFS: all clients' rise; VTC: only those of clients over their share",
        ours,
        min(waits["FCFS"]) >= 60 and min(ratios[:2]) >= 0.5 and max(ratios[2:]) <= 0.2,
        "under FCFS all at least 60 s; under VTC the first two at least half of that, the others at most a fifth",
        f"VTC's over FCFS's {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
    )
    return Report(rows, charts, [finding])


def _fig13(runs: Runs) -> Report:
    names = tuple(f"RPM({limit})" for limit in (5, 15, 20, 30))
    rows, charts = _responses(runs, names, _selected(runs["VTC"]))
    waits = [mean_wait(runs[name].records) for name in (*names, "FCFS")]
    ours = ", ".join(f"{wait:.1f}" for wait in waits) + " s"
    shorter = [
        name for name, (before, wait) in zip((*names[1:], "FCFS"), pairwise(waits), strict=True) if wait < before
    ]
    finding = Finding(
        "mean response time at 5, 15, 20, 30 per minute, and FCFS",
        "grows with the limit, towards FCFS",
        ours,
        not shorter,
        "none shorter than the one before",
        f"shorter than the one before: {', '.join(shorter)}",
    )
    return Report(rows, charts, [finding])


def _fig14(runs: Runs) -> Report:
    names = [f"RPM({limit})" for limit in LIMITS]
    ours = {name: tokens_per_second(runs[name]) for name in (*names, "VTC")}
    rows: list[tuple[object, ...]] = [("scheduler", "tokens/s"), *ours.items()]
    limits = [float(limit) for limit in LIMITS]
    lines = [
        ChartLine("RPM", limits, [ours[name] for name in names]),
        ChartLine("VTC", limits, [ours["VTC"]] * len(limits)),
    ]
    faster = [name for name in names if ours[name] >= ours["VTC"]]
    finding = Finding(
        "throughput by limit",
        "340 (5), 694 (20), 747 (30); VTC 779: RPM always lower",
        ", ".join(f"{value:.0f} ({name})" for name, value in ours.items()),
        not faster,
        "VTC's above RPM's at every limit",
        f"not above {', '.join(faster)}",
    )
    return Report(rows, [Chart("throughput", "requests per minute", "tokens/s", lines)], [finding])


def _fig18(runs: Runs) -> Report:
    names = ("FCFS", "LCF", "VTC", "VTC (predict)", "VTC (oracle)", "RPM(20)")
    order = _by_volume(runs["VTC"])
    rows, charts = _responses(runs, names, order)
    quiet, loud = order[9:], order[:2]
    waits = {name: [mean_wait(r for c in group for r in runs[name].of(c)) for group in (quiet, loud)] for name in names}
    ours = "; ".join(f"{name} {small:.1f} and {large:.1f} s" for name, (small, large) in waits.items())
    low = [name for name in names if waits[name][0] <= waits["FCFS"][0] / 5]
    expected = ["LCF", "VTC", "VTC (predict)", "VTC (oracle)"]
    finding = Finding(
        "response times with the profiled cost: the 18 quietest clients and the two loudest",
        "VTC keeps the quiet clients' low, as only LCF does besides",
        ours,
        low == expected,
        "the quiet clients' are at most a fifth of FCFS's under each VTC and LCF, and under nothing else",
        f"they are so under {', '.join(low)}",
    )
    return Report(rows, charts, [finding])


ITEMS = (
    item("vtc-fig11", "Figure 11: request rates, Arena trace", _fig11),
    item("vtc-fig12", "Figure 12: response times under FCFS and VTC, Arena trace", _fig12),
    item("vtc-fig13", "Figure 13: response times under rate limits, Arena trace", _fig13),
    item("vtc-fig14", "Figure 14: throughput under rate limits, Arena trace", _fig14),
    item("vtc-fig18", "Figure 18: response times of all clients under the profiled cost", _fig18, "slora-profiled"),
)

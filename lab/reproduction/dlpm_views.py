"""DLPM Figures 8, 9 and 12: response time and service of each client over time."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from cli.report import Chart, ChartLine
from lab.reproduction.dlpm_quanta import MISBEHAVING
from lab.reproduction.dlpm_system import A10G, PREBLES, TWO_PREBLES, item, programs, under_all
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import actual, mean_wait, rate_around, response_times
from lab.reproduction.programs import Chat, Judge, Sender, Tree
from serving.statistics import jain_index
from simulation.measures import hit_rate, received
from simulation.run import SimulationRun

Runs = Mapping[str, SimulationRun]
STEP = 10  # seconds between points
HEADER = ("scheduler", "client", "second", "response time", "actual service/s", "service/s")


def _views(runs: Runs) -> tuple[list[tuple[object, ...]], list[Chart]]:
    """Return rows of numbers, and panels as in the paper: response time, actual service, service; a column per
    scheduler."""
    rows: list[tuple[object, ...]] = [HEADER]
    panels: list[list[Chart]] = [[], [], []]
    for name, run in runs.items():
        times = range(0, int(run.seconds), STEP)
        columns: list[list[ChartLine]] = [[], [], []]
        for client in run.clients:
            xs, waits = response_times(run.of(client), run.seconds)
            label = f"client {client}"
            ledger, seen = actual(run, client), received(run, client)
            curves = [[rate_around(curve, time) for time in times] for curve in (ledger, seen)]
            columns[0].append(ChartLine(label, xs, waits))
            columns[1].append(ChartLine(label, times, curves[0]))
            columns[2].append(ChartLine(label, times, curves[1]))
            found = dict(zip(xs, waits, strict=True))
            rows += [
                (name, client, time, found.get(float(time), ""), a, s)
                for time, a, s in zip(times, *curves, strict=True)
            ]
        for panel, lines, what in zip(
            panels,
            columns,
            ("mean first-token latency, s", "service units/s, cached input free", "service units/s"),
            strict=True,
        ):
            panel.append(Chart(f"{name}: {what}", "seconds", what, lines))
    return rows, [chart for panel in panels for chart in panel]


def worst_response(run: SimulationRun, clients: Sequence[str]) -> float:
    """Return the highest windowed response time of these clients, in seconds."""
    return max(max(response_times(run.of(client), run.seconds)[1]) for client in clients)


def half_way_index(run: SimulationRun) -> float:
    """Return Jain's index of the clients' actual service by the middle of the run."""
    return jain_index([actual(run, client)[int(run.seconds / 2)] for client in run.clients])


def _asked(run: SimulationRun) -> float:
    """Return Jain's index of the cost of the calls that arrived in the first half, whenever they were served."""
    early = [record for record in run.records if record.arrival < run.seconds / 2]
    costs = dict.fromkeys(run.clients, 0.0)
    for r in early:
        costs[r.client] += r.input_tokens - r.cached_tokens + 2 * r.output_tokens
    return jain_index(list(costs.values()))


def _seconds(values: Mapping[str, float], digits: int = 0) -> str:
    return ", ".join(f"{name} {value:.{digits}f} s" for name, value in values.items())


def _indices(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def _but(values: Mapping[str, float], *names: str) -> dict[str, float]:
    """Return the values of all other names."""
    return {name: value for name, value in values.items() if name not in names}


def _fig8(runs: Runs) -> Report:
    rows, charts = _views(runs)
    quiet = {name: worst_response(run, ("0", "1")) for name, run in runs.items()}
    loud = {name: worst_response(run, ("2", "3")) for name, run in runs.items()}
    hits = ", ".join(f"{name} {hit_rate(run):.0%}" for name, run in runs.items())
    prompt = fmean(record.input_tokens for record in runs["VTC"].records)
    because = f"of prompts of {prompt:,.0f} tokens on average the caches hold {hits}"
    findings = [
        Finding(
            "highest response time of clients 0 and 1",
            "high under LPM, low under VTC and DLPM",
            _seconds(quiet, 1),
            quiet["RR + LPM"] >= 2 * max(quiet["DoubleQ"], quiet["VTC"]),
            "under LPM at least 2 times that under VTC and under DoubleQ",
            because,
        ),
        Finding(
            "highest response time of clients 2 and 3",
            "up to 80 s under VTC, consistently low under DLPM",
            _seconds(loud, 1),
            loud["DoubleQ"] <= loud["VTC"] / 2,
            "under DoubleQ at most half of that under VTC",
            because,
        ),
    ]
    return Report(rows, charts, findings, columns=len(runs))


SHARED = 0.9  # Jain's index that counts as ideal sharing


def _fig9(runs: Runs) -> Report:
    rows, charts = _views(runs)
    findings = [
        _fig9_end({name: run.seconds for name, run in runs.items()}),
        _fig9_waits({name: worst_response(run, ("1", "2")) for name, run in runs.items()}),
        _fig9_shares({name: half_way_index(run) for name, run in runs.items()}),
    ]
    return Report(rows, charts, findings, columns=len(runs))


def _fig9_end(ends: Mapping[str, float]) -> Finding:
    ours, others = ends["DoubleQ"], _but(ends, "DoubleQ")
    sooner = {name: end for name, end in others.items() if end < ours}
    gains = ", ".join(f"{name} {ends[name] / ours:.2f}" for name in ("VTC", *PREBLES))
    return Finding(
        "end of all programs",
        "DoubleQ first, up to 2 times as fast as VTC and Preble",
        _seconds(ends),
        not sooner and max(ends[name] for name in ("VTC", *PREBLES)) >= 1.5 * ours,
        "no other ends before DoubleQ, and VTC or a Preble takes at least 1.5 times as long",
        f"before DoubleQ ends: {_seconds(sooner) or 'none'}; times as long take {gains}",
    )


def _fig9_waits(waits: Mapping[str, float]) -> Finding:
    ours = waits["DoubleQ"]
    ratios = ", ".join(f"{name} {value / ours:.1f}" for name, value in _but(waits, "DoubleQ").items())
    return Finding(
        "highest response time of clients 1 and 2",
        "up to 600 s under Preble, far lower under DoubleQ; below VTC's",
        _seconds(waits),
        2 * ours <= min(waits[name] for name in PREBLES) and ours < waits["VTC"],
        "DoubleQ's at most half of either Preble's, and below VTC's",
        f"times as long as under DoubleQ: {ratios}",
    )


def _fig9_shares(shares: Mapping[str, float]) -> Finding:
    fair, unfair = {name: shares[name] for name in ("VTC", "DoubleQ")}, _but(shares, "VTC", "DoubleQ")
    missed = [name for name, index in fair.items() if index < SHARED]
    missed += [name for name, index in unfair.items() if index >= SHARED]
    return Finding(
        "Jain's index of actual service, half-way",
        "ideal sharing under VTC and DoubleQ, significant unfairness under the others",
        _indices(shares),
        not missed,
        f"at least {SHARED} under VTC and DoubleQ, less under each of the others",
        f"not so under {', '.join(missed)}",
    )


def _fig12(runs: Runs) -> Report:
    rows, charts = _views(runs)
    clients = runs["VTC"].clients
    others = [client for client in clients if client != "tree"]
    harm = {name: max(mean_wait(run.of(client)) for client in others) for name, run in runs.items()}
    waits = {name: max(mean_wait(run.of(client)) for client in clients) for name, run in runs.items()}
    findings = [
        _fig12_end({name: run.seconds for name, run in runs.items()}),
        Finding(
            "mean response times of the others than Tree of Thoughts, the worst",
            "significantly increased under LPM",
            _seconds(harm, 1),
            harm["LPM"] >= 2 * max(harm["DLPM"], harm["VTC"]),
            "under LPM at least 2 times that under DLPM and under VTC",
            f"{harm['LPM'] / harm['DLPM']:.1f} times DLPM's, {harm['LPM'] / harm['VTC']:.1f} times VTC's",
        ),
        Finding(
            "mean response time of any client, the worst",
            "lowest under DLPM",
            _seconds(waits, 1),
            waits["DLPM"] < min(_but(waits, "DLPM").values()),
            "lower under DLPM than under each of the others",
            f"it is lowest under {min(waits, key=lambda name: waits[name])}",
        ),
        _fig12_shares({name: half_way_index(run) for name, run in runs.items()}, _asked(runs["VTC"])),
    ]
    return Report(rows, charts, findings, columns=len(runs))


def _fig12_end(ends: Mapping[str, float]) -> Finding:
    first = min(ends, key=lambda name: ends[name])
    return Finding(
        "end of all programs",
        "DLPM first",
        _seconds(ends),
        first == "DLPM",
        "no other ends before DLPM",
        f"{first} ends {ends['DLPM'] - ends[first]:.1f} s, {ends['DLPM'] / ends[first] - 1:.1%}, before it",
    )


def _fig12_shares(shares: Mapping[str, float], asked: float) -> Finding:
    return Finding(
        "Jain's index of actual service, half-way",
        "VTC above DLPM",
        f"{_indices(shares)}; what was asked for {asked:.2f}",
        shares["VTC"] > shares["DLPM"],
        "VTC's above DLPM's",
        f"it is {shares['DLPM'] - shares['VTC']:.3f} lower",
    )


CONVERSATIONS = programs(
    240.0,
    *(Sender(client, Chat(turns=4), 0.8) for client in "01"),
    *(Sender(client, Chat(turns=4), 5.0, stop=120.0) for client in "23"),
    *(Sender(client, Chat(turns=4), 0.8, start=120.0) for client in "23"),
)
TREES = programs(
    20.0,
    Sender("0", MISBEHAVING, 0.8),
    *(Sender(client, Tree(3), 0.8) for client in "12"),
)
MIX = programs(
    120.0,
    Sender("chat 1", Chat(turns=4), 0.4),
    Sender("chat 2", Chat(turns=4), 0.4),
    Sender("judge", Judge(4), 0.1),
    Sender("tree", Tree(3), 0.06),
)
ALONE = {"DLPM": "DoubleQ", "LPM": "RR + LPM", "VTC": "VTC"}  # on one GPU the global policy has no effect
ITEMS = (
    item(
        "dlpm-fig8",
        "Figure 8: conversations on two GPUs, two clients too fast at first",
        "Llama-3.2-3B, two A10G. Conversations of four turns with the mean lengths of Table 2 stand for the Arena's; "
        "clients 2 and 3 start six times as many in the first two minutes.",
        under_all(CONVERSATIONS, 2, A10G),
        _fig8,
    ),
    item(
        "dlpm-fig9",
        "Figure 9: Tree of Thoughts on four GPUs, client 0 with a tenfold question",
        "Llama-3.2-3B, four A10G; trees of three branches, all clients at the same rate; client 0's questions begin "
        f"with the same 900 tokens (see dlpm-fig10). {TWO_PREBLES}",
        under_all(TREES, 4, A10G, "Preble, fixed"),
        _fig9,
    ),
    item(
        "dlpm-fig12",
        "Figure 12: a mix of workloads on one GPU",
        "Llama-3.2-3B, one A10G: two clients converse, one sends trees of three branches, one evaluations of four "
        "dimensions.",
        {name: under_all(MIX, 1, A10G)[scheduler] for name, scheduler in ALONE.items()},
        _fig12,
    ),
)

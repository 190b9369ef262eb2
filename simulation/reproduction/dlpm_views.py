"""DLPM Figures 8, 9 and 12: what each client sees over time."""

from collections.abc import Mapping, Sequence

from fairlead.metrics import jain_index
from simulation.reproduction.dlpm_quanta import MISBEHAVING, REBALANCED
from simulation.reproduction.dlpm_system import A10G, item, programs, under_all
from simulation.reproduction.item import Chart, Finding, Line, Report
from simulation.reproduction.measures import actual, mean_wait, rate_around, received, response_times
from simulation.reproduction.programs import Chat, Judge, Sender, Tree
from simulation.reproduction.run import Run

Runs = Mapping[str, Run]
STEP = 10  # seconds between points
HEADER = ("scheduler", "client", "second", "response time", "actual service/s", "service/s")


def _views(runs: Runs) -> tuple[list[tuple[object, ...]], list[Chart]]:
    """Three rows of panels, as in the paper: response time, actual service, service; a column per scheduler."""
    rows: list[tuple[object, ...]] = [HEADER]
    panels: list[list[Chart]] = [[], [], []]
    for name, run in runs.items():
        times = range(0, int(run.seconds), STEP)
        columns: list[list[Line]] = [[], [], []]
        for client in run.clients:
            xs, waits = response_times(run.of(client), run.seconds)
            label = f"client {client}"
            ledger, seen = actual(run, client), received(run, client)
            curves = [[rate_around(curve, time) for time in times] for curve in (ledger, seen)]
            columns[0].append(Line(label, xs, waits))
            columns[1].append(Line(label, times, curves[0]))
            columns[2].append(Line(label, times, curves[1]))
            found = dict(zip(xs, waits, strict=True))
            rows += [
                (name, client, time, found.get(float(time), ""), a, s)
                for time, a, s in zip(times, *curves, strict=True)
            ]
        for panel, lines, what in zip(
            panels, columns, ("response time, s", "actual service/s", "service/s"), strict=True
        ):
            panel.append(Chart(f"{name}: {what}", "seconds", what, lines))
    return rows, [chart for panel in panels for chart in panel]


def _ends(runs: Runs) -> str:
    return ", ".join(f"{name} {run.seconds:.0f} s" for name, run in runs.items())


def _worst(run: Run, clients: Sequence[str]) -> float:
    """The highest windowed response time of these."""
    return max(max(response_times(run.of(client), run.seconds)[1]) for client in clients)


def _share(run: Run, until: float) -> float:
    """Jain's index of the clients' actual service by that second."""
    return jain_index([actual(run, client)[int(until)] for client in run.clients])


def _asked(run: Run) -> float:
    """Jain's index of what the calls of the first half cost, whenever they were served."""
    early = [record for record in run.records if record.arrival < run.seconds / 2]
    costs = dict.fromkeys(run.clients, 0.0)
    for r in early:
        costs[r.client] += r.input_tokens - r.cached_tokens + 2 * r.output_tokens
    return jain_index(list(costs.values()))


def _fig8(runs: Runs) -> Report:
    rows, charts = _views(runs)
    quiet = {name: _worst(run, ("0", "1")) for name, run in runs.items()}
    loud = {name: _worst(run, ("2", "3")) for name, run in runs.items()}
    findings = [
        Finding(
            "highest response time of clients 0 and 1",
            "high under LPM, low under VTC and DLPM",
            ", ".join(f"{name} {value:.1f} s" for name, value in quiet.items()),
            quiet["RR + LPM"] > 2 * max(quiet["DoubleQ"], quiet["VTC"]),
        ),
        Finding(
            "highest response time of clients 2 and 3",
            "up to 80 s under VTC, consistently low under DLPM",
            ", ".join(f"{name} {value:.1f} s" for name, value in loud.items()),
            loud["DoubleQ"] < 0.8 * loud["VTC"],
            "" if loud["DoubleQ"] < 0.8 * loud["VTC"] else SHORT,
        ),
    ]
    return Report(rows, charts, findings, columns=len(runs))


SHORT = (
    "prefixes of this workload are 56 tokens on average: there is next to no computation to be saved, and who waits is "
    "decided by fairness alone"
)


FIXED = "Preble, fixed"
MILDER = (
    "so under RR + LPM. Under Preble the others' programs explore by load, and so keep away from client 0's GPU; the "
    "measured ones were queued there"
)
NOT_ALL_WAIT = "the index is that of what they ask for: those who converse get all of it under every scheduler"


def _fig9(runs: Runs) -> Report:
    rows, charts = _views(runs)
    fair = {name: _share(run, run.seconds / 2) for name, run in runs.items()}
    waits = {name: _worst(run, ("1", "2")) for name, run in runs.items()}
    fastest = runs["DoubleQ"].seconds
    others = [run.seconds for name, run in runs.items() if name not in ("DoubleQ", "Preble")]
    ratio = max(runs["VTC"].seconds, runs[FIXED].seconds) / fastest
    findings = [
        Finding(
            "end of all programs",
            "DoubleQ first, up to 2 times as fast as VTC and Preble",
            _ends(runs),
            fastest <= min(others) and ratio > 1.2,
            REBALANCED,
        ),
        Finding(
            "highest response time of clients 1 and 2",
            "up to 600 s under Preble, far lower under DoubleQ; below VTC's",
            ", ".join(f"{name} {value:.0f} s" for name, value in waits.items()),
            waits["DoubleQ"] < min(waits[FIXED], waits["RR + LPM"], waits["VTC"]),
        ),
        Finding(
            "Jain's index of actual service, half-way",
            "ideal sharing under VTC and DoubleQ, significant unfairness under the others",
            ", ".join(f"{name} {value:.2f}" for name, value in fair.items()),
            min(fair["VTC"], fair["DoubleQ"]) > 0.9 > max(fair["RR + LPM"], fair[FIXED]),
            MILDER,
        ),
    ]
    return Report(rows, charts, findings, columns=len(runs))


def _fig12(runs: Runs) -> Report:
    rows, charts = _views(runs)
    clients = runs["VTC"].clients
    waits = {name: max(mean_wait(run.of(client)) for client in clients) for name, run in runs.items()}
    shares = {name: _share(run, run.seconds / 2) for name, run in runs.items()}
    asked = _asked(runs["VTC"])
    others = [client for client in clients if client != "tree"]
    harm = {name: max(mean_wait(run.of(client)) for client in others) for name, run in runs.items()}
    first = min(runs, key=lambda name: runs[name].seconds)
    findings = [
        Finding("end of all programs", "DLPM first", _ends(runs), runs["DLPM"].seconds <= 1.02 * runs[first].seconds),
        Finding(
            "mean response times of the others than Tree of Thoughts, the worst",
            "significantly increased under LPM",
            ", ".join(f"{name} {value:.1f} s" for name, value in harm.items()),
            harm["LPM"] > 1.5 * harm["DLPM"],
        ),
        Finding(
            "mean response time of any client, the worst",
            "lowest under DLPM",
            ", ".join(f"{name} {value:.1f} s" for name, value in waits.items()),
            waits["DLPM"] <= min(waits.values()),
        ),
        Finding(
            "Jain's index of actual service, half-way",
            "VTC above DLPM",
            ", ".join(f"{name} {value:.2f}" for name, value in shares.items()) + f"; what was asked for {asked:.2f}",
            shares["VTC"] >= shares["DLPM"],
            "" if shares["VTC"] >= shares["DLPM"] else NOT_ALL_WAIT,
        ),
    ]
    return Report(rows, charts, findings, columns=len(runs))


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
ALONE = {"DLPM": "DoubleQ", "LPM": "RR + LPM", "VTC": "VTC"}  # on one GPU the global policy has no choice
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
        "with the same 900 tokens (see dlpm-fig10).",
        under_all(TREES, 4, A10G, FIXED),
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

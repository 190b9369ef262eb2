"""VTC section 5.2: synthetic workloads on an A10G."""

from collections.abc import Callable, Mapping
from statistics import fmean

from cli.report import Chart, ChartLine
from reproduction.fitted import SLORA
from reproduction.item import Finding, Item, Report, Study
from reproduction.measures import (
    Curve,
    all_backlogged,
    gap,
    gap_since,
    gap_within,
    mean_wait,
    rate_around,
    response_times,
)
from reproduction.sources import Sources
from reproduction.streams import Stream, Streams
from reproduction.systems import slora
from simulation.measures import received
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
A10G = SLORA["a10g llama-2-7b"]
KV_TOKENS = 10_000
SECONDS = 600
SETUP = "Llama-2-7b on an A10G, 10,000 KV tokens, S-LoRA's batching, step times fitted to the authors' measurements."
BOUND = 4 * KV_TOKENS  # 2 max(w_p L_input, w_q M), Theorem 4.4


def scenario(policy: str, *streams: Stream, cost: str = "weighted-tokens") -> Scenario:
    """Return these clients on the A10G under `policy`."""
    return Scenario(slora(A10G, policy, KV_TOKENS, cost), Streams(streams))


def curves(run: SimulationRun) -> dict[str, list[float]]:
    """Return each client's accumulated service by second."""
    return {client: received(run, client) for client in run.clients}


def rates(run: SimulationRun, seconds: int) -> list[ChartLine]:
    """Return each client's service rate over time as a line."""
    times = range(0, seconds, 5)
    return [
        ChartLine(f"client {client}", times, [rate_around(curve, time) for time in times])
        for client, curve in curves(run).items()
    ]


def rate(curve: Curve, start: int, stop: int) -> float:
    """Return the mean service per second between two seconds."""
    return (curve[min(stop, len(curve) - 1)] - curve[start]) / (stop - start)


def item(
    name: str, figure: str, jobs: Mapping[str, SimulationJob], read: Callable[[Runs], Report], differs: str = ""
) -> Item:
    """Make an item that needs no data; `differs` states its differences from the paper's setup."""

    def study(_sources: Sources) -> Study:
        return Study(f"{SETUP} {differs}".rstrip(), jobs, read)

    return Item(name, f"VTC {figure}", study)


def both(*streams: Stream) -> dict[str, SimulationJob]:
    """Return the same clients under VTC and under FCFS."""
    return {"VTC": scenario("vtc", *streams), "FCFS": scenario("fcfs", *streams)}


def gap_chart(runs: Runs) -> Chart:
    """Chart the absolute difference in accumulated service."""
    lines = [ChartLine(name, range(SECONDS), gap(curves(run))[:SECONDS]) for name, run in runs.items()]
    return Chart("difference of accumulated service", "seconds", "service units", lines)


def backlog_chart(runs: Runs) -> Chart:
    """Chart the difference of service received since all clients are backlogged, beside the theorem's bound."""
    lines = []
    for name, run in runs.items():
        start, values = _since_backlogged(run)
        lines.append(ChartLine(name, range(start, SECONDS), values))
    lines.append(ChartLine("bound of Theorem 4.4", [0.0, float(SECONDS)], [float(BOUND)] * 2))
    return Chart("difference of service since both clients wait", "seconds", "service units", lines)


def _since_backlogged(run: SimulationRun) -> tuple[int, list[float]]:
    """Return the start of the longest interval in which all clients wait (else 0), and the gap by second since then."""
    start, _ = max(all_backlogged(run), key=lambda span: span[1] - span[0], default=(0, 0))
    return start, gap_since(curves(run), start)[start:SECONDS]


def gap_rows(runs: Runs) -> list[tuple[object, ...]]:
    """Return the gap and each client's service every ten seconds."""
    rows: list[tuple[object, ...]] = [("scheduler", "second", "gap", "client", "service")]
    for name, run in runs.items():
        served, gaps = curves(run), gap(curves(run))
        rows += [
            (name, second, gaps[second], client, curve[second])
            for second in range(0, min(SECONDS, len(gaps)), 10)
            for client, curve in served.items()
        ]
    return rows


def bounded_against_growing(runs: Runs) -> Finding:
    """Judge the conclusion of Figures 3, 7 and 8."""
    served, spans = curves(runs["VTC"]), all_backlogged(runs["VTC"])
    vtc = max((gap_within(served, start, stop) for start, stop in spans), default=0.0)
    fcfs = _since_backlogged(runs["FCFS"])[1]
    half, end = fcfs[len(fcfs) // 2], fcfs[-1]
    return Finding(
        "difference of service while both clients wait",
        "bounded under VTC, grows without limit under FCFS",
        f"VTC at most {vtc:,.0f} in any interval (bound {BOUND:,}); FCFS {half:,.0f} half-way, {end:,.0f} in the end",
        bool(spans) and vtc <= BOUND and end > 1.5 * half and end > 4 * vtc,
        "VTC's at most the bound; FCFS's in the end above 1.5 times that half-way, and above 4 times VTC's highest",
        f"VTC's is {vtc / BOUND:.0%} of the bound; FCFS's grows from {half:,.0f} to {end:,.0f}",
    )


def equal_rates(run: SimulationRun, start: int, stop: int) -> Finding:
    """Judge whether two backlogged clients receive equal service rates."""
    first, second = (rate(curve, start, stop) for curve in curves(run).values())
    ours = f"{first:,.0f} and {second:,.0f} service units per second"
    holds = abs(first / second - 1) <= 0.05
    return Finding("service rates under VTC", "the same", ours, holds, "within 5 %", f"{first / second - 1:+.1%} apart")


def _two_panels(runs: Runs, gaps: Chart, findings: list[Finding]) -> Report:
    rates_chart = Chart("service rate under VTC", "seconds", "service units/s", rates(runs["VTC"], SECONDS))
    return Report(gap_rows(runs), [gaps, rates_chart], findings)


def _fig3(runs: Runs) -> Report:
    return _two_panels(
        runs, backlog_chart(runs), [bounded_against_growing(runs), equal_rates(runs["VTC"], 60, SECONDS)]
    )


def _fig4(runs: Runs) -> Report:
    served = [rate(curve, 60, SECONDS) for curve in curves(runs["VTC"]).values()]
    waits = [mean_wait(runs["VTC"].of(client)) for client in "123"]
    ratio = served[1] / served[0]
    findings = [
        Finding(
            "service of clients 1 and 2",
            "1 : 2, as their rates",
            f"1 : {ratio:.2f}",
            abs(ratio - 2) <= 0.1,
            "1 : 1.90 to 1 : 2.10",
            f"{ratio / 2 - 1:+.1%} of what the rates say",
        ),
        Finding(
            "client 3",
            "more than 1/3",
            f"{served[2] / sum(served):.0%}",
            served[2] > sum(served) / 3,
            "more than 1/3",
            f"{1 / 3 - served[2] / sum(served):.1%} less",
        ),
        Finding(
            "waits under VTC",
            "clients 1 and 2 served immediately (4.8, 4.9 and 124.4 s in the authors' published run)",
            ", ".join(f"{wait:.1f}" for wait in waits) + " s to the first token on average",
            max(waits[:2]) <= waits[2] / 10,
            "theirs at most a tenth of client 3's",
            f"the longer of theirs is {max(waits[:2]) / waits[2]:.2f} of client 3's",
        ),
    ]
    return _two_panels(runs, gap_chart(runs), findings)


def _phases(run: SimulationRun, client: str, start: int, stop: int) -> tuple[float, float]:
    """Return the mean rates in the client's ON and OFF minutes."""
    curve = received(run, client)
    on = [rate(curve, second, second + 60) for second in range(start, stop, 120)]
    off = [rate(curve, second, second + 60) for second in range(start + 60, stop, 120)]
    return fmean(on), fmean(off)


def _fig5(runs: Runs) -> Report:
    first, second = _phases(runs["VTC"], "1", 0, SECONDS), _phases(runs["VTC"], "2", 0, SECONDS)
    demand = 30 / 60 * 768
    totals = first[0] + second[0], first[1] + second[1]
    findings = [
        Finding(
            "client 1 in ON",
            f"less than its share: mostly served before OFF (asks for {demand:.0f}/s)",
            f"{first[0]:.0f}/s in ON, {first[1]:.0f}/s in OFF",
            first[0] >= 0.85 * demand,
            "at least 85 % of what it asks for is served in ON",
            f"{first[0] / demand:.0%} is served in ON",
        ),
        Finding(
            "total service rate",
            "the same in ON and OFF: work-conserving",
            f"{totals[0]:,.0f}/s and {totals[1]:,.0f}/s",
            abs(totals[0] / totals[1] - 1) <= 0.05,
            "within 5 %",
            f"{totals[0] / totals[1] - 1:+.1%} apart",
        ),
    ]
    return _two_panels(runs, gap_chart(runs), findings)


def _fig6(runs: Runs) -> Report:
    return _two_panels(
        runs, backlog_chart(runs), [equal_rates(runs["VTC"], 60, SECONDS), bounded_against_growing(runs)]
    )


def _fig7(runs: Runs) -> Report:
    return _two_panels(runs, backlog_chart(runs), [bounded_against_growing(runs)])


def _fig9(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("scheduler", "client", "second", "mean first-token latency")]
    charts, late, early = [], {}, {}
    for name, run in runs.items():
        lines = []
        for client in run.clients:
            xs, ys = response_times(run.of(client), SECONDS)
            rows += [(name, client, x, y) for x, y in zip(xs, ys, strict=True)]
            lines.append(ChartLine(f"client {client}", xs, ys))
        charts.append(Chart(f"{name}: response time", "seconds", "seconds to first token", lines))
        early[name] = mean_wait(r for r in run.of("1") if r.arrival < 200)
        late[name] = mean_wait(r for r in run.of("1") if r.arrival >= 400)
    ours = "; ".join(f"{name} {early[name]:.1f} s in the first third, {late[name]:.1f} s in the last" for name in runs)
    grown = {name: late[name] - early[name] for name in runs}
    finding = Finding(
        "client 1",
        "response time roughly unchanged under VTC",
        ours,
        grown["VTC"] <= grown["FCFS"] / 10,
        "under VTC it grows by at most a tenth of what it grows by under FCFS",
        f"it grows by {grown['VTC']:.2f} s under VTC, by {grown['FCFS']:.2f} s under FCFS",
    )
    return Report(rows, charts, [finding])


def _fig10(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("scheduler", "second", "client", "service rate")]
    charts, second_phase = [], {}
    for name, run in runs.items():
        lines = rates(run, 900)
        rows += [(name, x, line.label, y) for line in lines for x, y in zip(line.xs, line.ys, strict=True)]
        charts.append(Chart(f"{name}: service rate", "seconds", "service units/s", lines))
        first, second = (rate(received(run, client), 330, 570) for client in "12")
        second_phase[name] = first / second
    ours = ", ".join(f"{name} 1 : {1 / ratio:.2f}" for name, ratio in second_phase.items())
    finding = Finding(
        "service of clients 1 and 2 in the second phase",
        "equal under VTC; LCF serves client 1 disproportionately, for its deficit of the first phase",
        ours,
        abs(second_phase["VTC"] - 1) <= 0.05 and second_phase["LCF"] >= 1.2,
        "under VTC within 5 %; under LCF client 1 gets at least 1.2 times as much",
        ", ".join(f"client 1 gets {ratio:.2f} times as much under {name}" for name, ratio in second_phase.items()),
    )
    return Report(rows, charts, [finding])


def _shifting() -> tuple[Stream, ...]:
    return (
        Stream(client="1", per_minute=30, stop=300, off_after=60),
        Stream(client="2", per_minute=120, stop=300),
        Stream(client="1", per_minute=60, start=300, stop=600),
        Stream(client="2", per_minute=60, start=300, stop=600),
        Stream(client="1", per_minute=30, start=600, stop=900),
        Stream(client="2", per_minute=90, start=600, stop=900),
    )


ITEMS = (
    item(
        "vtc-fig3",
        "Figure 3: two overloaded clients, 90 and 180 requests per minute",
        both(Stream(client="1", per_minute=90), Stream(client="2", per_minute=180)),
        _fig3,
    ),
    item(
        "vtc-fig4",
        "Figure 4: 15, 30 and 90 requests per minute",
        both(Stream(client="1", per_minute=15), Stream(client="2", per_minute=30), Stream(client="3", per_minute=90)),
        _fig4,
    ),
    item(
        "vtc-fig5",
        "Figure 5: ON/OFF below its share",
        both(Stream(client="1", per_minute=30, off_after=60), Stream(client="2", per_minute=120)),
        _fig5,
    ),
    item(
        "vtc-fig6",
        "Figure 6: ON/OFF over its share",
        both(Stream(client="1", per_minute=120, off_after=60), Stream(client="2", per_minute=180)),
        _fig6,
    ),
    item(
        "vtc-fig7",
        "Figure 7: Poisson, short against long requests",
        both(
            Stream(client="1", per_minute=480, input_tokens=64, output_tokens=64, poisson=True),
            Stream(client="2", per_minute=90, poisson=True),
        ),
        _fig7,
    ),
    item(
        "vtc-fig8",
        "Figure 8: Poisson, long input against long output",
        both(
            Stream(client="1", per_minute=480, input_tokens=512, output_tokens=32, poisson=True),
            Stream(client="2", per_minute=90, input_tokens=32, output_tokens=512, poisson=True),
        ),
        _fig7,
        "Client 1 sends 512 and receives 32 tokens, client 2 the reverse, as in the authors' code; the caption has 64 "
        "and 512 for client 1, and 512 and 64 for client 2.",
    ),
    item(
        "vtc-fig9",
        "Figure 9: isolation from a client whose rate rises",
        both(Stream(client="1", per_minute=30), Stream(client="2", per_minute=12, rising_to=120)),
        _fig9,
    ),
    item(
        "vtc-fig10",
        "Figure 10: a distribution that shifts",
        {"VTC": scenario("vtc", *_shifting()), "LCF": scenario("lcf", *_shifting())},
        _fig10,
    ),
)

"""VTC section 5.2: synthetic workloads on an A10G."""

from statistics import fmean

from cli.report import Chart, ChartLine
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import mean_wait, response_times
from lab.reproduction.streams import Stream
from lab.reproduction.vtc_system import SECONDS, Runs, both, item, scenario
from lab.reproduction.vtc_views import (
    backlog_chart,
    bounded_against_growing,
    curves,
    equal_rates,
    gap_chart,
    rate,
    rates,
    two_panels,
)
from simulation.measures import received
from simulation.run import SimulationRun


def _fig3(runs: Runs) -> Report:
    return two_panels(runs, backlog_chart(runs), [bounded_against_growing(runs), equal_rates(runs["VTC"], 60, SECONDS)])


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
    return two_panels(runs, gap_chart(runs), findings)


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
    return two_panels(runs, gap_chart(runs), findings)


def _fig6(runs: Runs) -> Report:
    return two_panels(runs, backlog_chart(runs), [equal_rates(runs["VTC"], 60, SECONDS), bounded_against_growing(runs)])


def _fig7(runs: Runs) -> Report:
    return two_panels(runs, backlog_chart(runs), [bounded_against_growing(runs)])


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

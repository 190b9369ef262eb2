"""VTC section 5.4 and appendix B on synthetic workloads: pool size and lengths, weights, prediction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from cli.report import Chart, ChartLine
from lab.reproduction.fitted import SLORA
from lab.reproduction.item import Finding, Item, Report, Study
from lab.reproduction.measures import gap, gap_since
from lab.reproduction.sources import Sources
from lab.reproduction.streams import Stream, Streams
from lab.reproduction.systems import slora
from lab.reproduction.vtc_system import item, scenario
from lab.reproduction.vtc_views import curves, gap_rows, rate
from serving.cost import WEIGHT_ONE
from simulation.measures import received
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
SECONDS = 600
QUEUED = 60  # second by which every client has a queue
FILLED = 120  # second by which the pool is full, too
A100 = SLORA["a100-80g llama-2-13b"]
TWO = (Stream(client="1", per_minute=90), Stream(client="2", per_minute=180))
EIGHT = tuple(Stream(client=str(n), per_minute=24 if n < 3 else 36) for n in range(8))
FOUR = tuple(Stream(client=str(n), per_minute=per_minute) for n, per_minute in enumerate((48, 48, 72, 96), start=1))
PREDICTORS = {"VTC": "vtc", "VTC (±50%)": "vtc-half", "VTC (oracle)": "vtc-oracle"}


POOLS = [(35_000, 256), (35_000, 512), (35_000, 768), (65_000, 512)]
STARTS = (0.0, 1.0, 2.0)  # start times of the second client, in seconds
ALIKE = 1.25
SIGNIFICANT = 0.75


def _pool(kv_tokens: int, length: int, start: float) -> Scenario:
    """Return two clients on the A100 at the authors' rates, of which the second sends twice as much."""
    first = 180 if length == 256 else 90
    streams = tuple(
        Stream(client=client, per_minute=rate, input_tokens=length, output_tokens=length, start=begin)
        for client, rate, begin in (("1", first, 0.0), ("2", 2 * first, start))
    )
    return Scenario(slora(A100, "vtc", kv_tokens), Streams(streams))


def _late_gap(run: SimulationRun) -> list[float]:
    """Return the gap as the authors plotted it: calls that ended in the first two minutes do not count."""
    late = replace(run, records=tuple(record for record in run.records if record.ended >= FILLED))
    return gap(curves(late))[FILLED:SECONDS]


def _fig15(runs: Runs) -> Report:
    gaps = {name: _late_gap(run) for name, run in runs.items()}
    most = {pool: [max(gaps[_pool_name(*pool, start)]) for start in STARTS] for pool in POOLS}
    findings = [_by_pool(most[35_000, 512], most[65_000, 512])]
    findings.append(_by_length({length: most[35_000, length] for length in (256, 512, 768)}))
    lines = [ChartLine(name, range(FILLED, SECONDS), values) for name, values in gaps.items() if name.endswith(" 0 s")]
    return Report(
        gap_rows(runs), [Chart("difference of service since 120 s", "seconds", "service units", lines)], findings
    )


def _by_pool(small: Sequence[float], large: Sequence[float]) -> Finding:
    more = [f"{start:.0f} s" for start, a, b in zip(STARTS, small, large, strict=True) if b > a]
    return Finding(
        "highest difference of service by pool size, three starts",
        "varies more at 65,000 than at 35,000",
        f"35,000: {_each(small)}; 65,000: {_each(large)}; mean {fmean(small):,.0f} and {fmean(large):,.0f}",
        fmean(large) > fmean(small),
        "on average over the starts higher at 65,000",
        f"higher at 65,000 when the second client starts after {', '.join(more) or 'none of these'}, not otherwise",
    )


def _by_length(most: Mapping[int, Sequence[float]]) -> Finding:
    short, *longer = (fmean(values) for values in most.values())
    return Finding(
        "the same by length",
        "larger for longer requests; 512 and 768 alike",
        "; ".join(f"{length}*2: {_each(values)}, mean {fmean(values):,.0f}" for length, values in most.items()),
        short < min(longer) and max(longer) <= ALIKE * min(longer),
        f"on average over the starts higher at 512 and 768 than at 256, and these within a factor {ALIKE}",
        f"512 has {longer[0] / short:.1f} and 768 {longer[1] / short:.1f} times 256's; start by start 768 has "
        + ", ".join(f"{b / a:.2f}" for a, b in zip(most[512], most[768], strict=True))
        + " times 512's",
    )


def _each(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


def _pool_name(kv_tokens: int, length: int, start: float) -> str:
    return f"{kv_tokens:,} tokens, {length}*2, second client after {start:.0f} s"


def _fig15_study(_sources: Sources) -> Study:
    jobs: dict[str, SimulationJob] = {
        _pool_name(*pool, start): _pool(*pool, start) for pool in POOLS for start in STARTS
    }
    setup = (
        "Llama-2-13b on an A100-80G, S-LoRA's batching; the rates of the authors' runs. Pools are compared at 512 "
        "tokens, as the authors did; the second client starts 0, 1 and 2 s after the first."
    )
    return Study(setup, jobs, _fig15)


def _fig16(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("scheduler", "second", "client", "service")]
    charts, served = [], {}
    for name, run in runs.items():
        lines = [ChartLine(f"client {c}", range(SECONDS), received(run, c)[:SECONDS]) for c in run.clients]
        rows += [(name, x, line.label, line.ys[x]) for line in lines for x in range(0, SECONDS, 10)]
        charts.append(Chart(name, "seconds", "service units received", lines))
        rates = [rate(received(run, client), 60, 300) for client in run.clients]
        served[name] = [value / rates[0] for value in rates]
    texts = {name: " : ".join(f"{value:.2f}" for value in ratios) for name, ratios in served.items()}
    wrong = {
        name: max(abs(ratio / weight(n) - 1) for n, ratio in enumerate(served[name], start=1))
        for name, weight in (("VTC", lambda _: 1), ("weighted VTC", lambda n: n))
    }
    findings = [
        Finding(claim, paper, texts[name], wrong[name] <= 0.05, "each within 5 %", f"one is {wrong[name]:.1%} off")
        for claim, paper, name in (
            ("four clients under VTC", "comparable service", "VTC"),
            ("weights 1, 2, 3, 4", "service close to 1 : 2 : 3 : 4", "weighted VTC"),
        )
    ]
    return Report(rows, charts, findings)


def _fig16_jobs() -> dict[str, SimulationJob]:
    """Return jobs in which the weighted clients demand their shares: 1.7 requests per second are served in total."""
    weighted = tuple(Stream(client=str(n), per_minute=60.0 + 15 * n, weight=n * WEIGHT_ONE) for n in range(1, 5))
    return {"VTC": scenario("vtc", *FOUR), "weighted VTC": scenario("vtc", *weighted)}


def _fig19(runs: Runs) -> Report:
    rows: list[tuple[object, ...]] = [("clients and scheduler", "second", "difference")]
    charts, means = [], {}
    for clients in ("2 clients", "8 clients"):
        lines = []
        for name in PREDICTORS:
            values = gap_since(curves(runs[f"{clients}, {name}"]), QUEUED)[QUEUED:SECONDS]
            lines.append(ChartLine(name, range(QUEUED, SECONDS), values))
            rows += [(f"{clients}, {name}", QUEUED + x, value) for x, value in enumerate(values)]
            means[clients, name] = fmean(values)
        charts.append(Chart(clients, "seconds", "difference of service, units", lines))
    findings = []
    for clients in ("2 clients", "8 clients"):
        values = [means[clients, name] for name in PREDICTORS]
        shares = [f"{name} {value / values[0]:.2f}" for name, value in zip(PREDICTORS, values, strict=True)]
        findings.append(
            Finding(
                f"mean difference, {clients}",
                "prediction lowers it significantly, even one that errs by 50 %",
                ", ".join(f"{name} {value:,.0f}" for name, value in zip(PREDICTORS, values, strict=True)),
                max(values[1:]) <= SIGNIFICANT * values[0],
                f"with prediction at most {SIGNIFICANT} of VTC's",
                f"of VTC's: {', '.join(shares)}",
            )
        )
    return Report(rows, charts, findings)


def _predicted(streams: tuple[Stream, ...]) -> dict[str, SimulationJob]:
    return {name: scenario(policy, *streams) for name, policy in PREDICTORS.items()}


ITEMS = (
    Item("vtc-fig15", "VTC Figure 15: pool size and request length", _fig15_study),
    item("vtc-fig16", "Figure 16: weighted VTC", _fig16_jobs(), _fig16),
    item(
        "vtc-fig19",
        "Figure 19: length prediction",
        {f"2 clients, {name}": job for name, job in _predicted(TWO).items()}
        | {f"8 clients, {name}": job for name, job in _predicted(EIGHT).items()},
        _fig19,
    ),
)

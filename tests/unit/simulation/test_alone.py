"""The isolated baseline and the slowdown over it, on a worker whose every step takes a second."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.run import Scenario
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.step_time import Coefficients, MeasuredProfile
from simulation.trace_rows import TraceRow
from simulation.traces import TraceWorkload
from simulation.what_if.alone import LoneTimes, alone_with, times_alone
from simulation.what_if.baseline import Baseline, Isolation
from simulation.what_if.capacity import capacity_of
from simulation.what_if.fair_shares import FairShares, asks_of, window_of
from simulation.what_if.front import ranked
from simulation.what_if.summary import Summary, summarize

SECOND = Coefficients(step=1.0, sequence=0.0, weights=0.0, token=0.0, context=0.0, pair=0.0)
WORKER = WorkerSpec(
    profile=MeasuredProfile(coefficients=SECOND, kv_tokens=1600),
    policy="fcfs",
    kv_tokens=1600,
    max_running=1,
    block_tokens=16,
)
POOL = ClusterSpec(worker=WORKER, network_seconds=0.0)


def trace(tmp_path: Path, *rows: tuple[float, str, int, int]) -> TraceWorkload:
    """Rows of arrival, client, input and output tokens."""
    path = tmp_path / "trace.csv"
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(["arrival_s,client,input_tokens,output_tokens", *lines]))
    return TraceWorkload(path)


def held_against(given: TraceWorkload, capacity: float) -> Baseline:
    rows = given.rows()
    asks = asks_of(rows, WORKER)
    shares = FairShares(asks, capacity, window_of(asks.values()))
    return Baseline(shares, times_alone(POOL, rows, shares))


def test_alone_a_client_has_the_pool_as_fast_as_its_share_of_it(tmp_path: Path) -> None:
    """Ten cost units a second. In the only window that matters, `b` asks for 3 of 10 and `a` for 300."""
    given = trace(tmp_path, (0.0, "a", 100, 100), (0.0, "b", 1, 1), (0.0, "b", 2000, 1))
    times = held_against(given, capacity=20.0).alone
    assert set(times) == {1, 2}, "nobody takes the third"
    assert times[2] == LoneTimes(first_token=2.0, latency=2.0), "a step on half of the pool"
    assert times[1].first_token == pytest.approx(1 / 0.7)


def test_the_slowdown_is_the_latency_over_that_of_the_baseline(tmp_path: Path) -> None:
    """`b` waits for the ten steps of `a` and then takes one: 11 s, and alone with half of the pool 2 s."""
    given = trace(tmp_path, (0.0, "a", 100, 10), (0.0, "b", 1, 1))
    run = Scenario(POOL, given).run()
    row = summarize("fcfs", run, held_against(given, capacity=20.0))
    assert (row.within.calls, row.above.calls) == (1, 1)
    assert (row.within.ttft_mean, row.within.latency_mean, row.within.slowdown_mean) == (11.0, 11.0, 5.5)
    assert row.judged == row.within


def test_capacity_is_what_a_pool_gives_that_never_lacks_work(tmp_path: Path) -> None:
    """One call at a time of ten steps, 100 input and 10 output tokens: 120 cost units in 10 s, whenever they come."""
    given = trace(tmp_path, *((60.0 * n, "a", 100, 10) for n in range(10)))
    assert capacity_of(POOL, given.rows()) == pytest.approx(12.0)
    twice = replace(POOL, workers=2, route="least-loaded")
    assert capacity_of(twice, given.rows()) == pytest.approx(24.0)


def test_a_trace_of_which_nothing_can_be_served_has_no_capacity(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no request was answered: all 1 requests are too long"):
        capacity_of(POOL, trace(tmp_path, (0.0, "a", 3000, 1)).rows())


def test_alone_a_call_waits_only_for_its_own_clients_answers() -> None:
    row = TraceRow(arrival=10.0, client="a", app="", input_tokens=1, output_tokens=1)
    own = {3: row, 5: replace(row, arrival=12.0, after=(2, 3)), 9: replace(row, arrival=14.0, after=(4,))}
    assert [(one.arrival, one.after) for one in alone_with(own, 10.0)] == [(0.0, ()), (2.0, (0,)), (4.0, (1,))]


def test_fair_policies_rank_above_those_that_serve_a_flooder_first(tmp_path: Path) -> None:
    """Whoever waits longest is the flooder under the fair ones, and everybody else under the others."""
    flood = [(0.1 * n, "flood", 160, 4) for n in range(80)]
    light = [(2.0 + 4 * n, f"light-{n % 3}", 32, 4) for n in range(30)]
    given = trace(tmp_path, *sorted(flood + light))
    worker = replace(WORKER, max_running=4, quantum_tokens=64)
    baseline = Isolation(replace(POOL, worker=worker), given).run()

    def row(policy: str) -> Summary:
        spec = replace(POOL, worker=replace(worker, policy=policy))
        return summarize(policy, Scenario(spec, given).run(), baseline)

    best, second, *others = ranked(map(row, ("lpm", "fcfs", "vtc", "dlpm")))
    assert {best.name, second.name} == {"vtc", "dlpm"}
    for unfair in others:
        assert unfair.within.slowdown_p99 > 2 * second.within.slowdown_p99
        assert unfair.within.ttft_mean > 2 * second.within.ttft_mean
        assert unfair.above.ttft_mean < second.above.ttft_mean
        assert unfair.jain < second.jain

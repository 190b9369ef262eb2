"""Configurations of one workload: what their rows say, and which no other beats."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.summary_table import summary_table
from fairlead.outcomes import Outcome
from simulation.run import CallResult, SimulationRun
from simulation.spec import ClusterSpec
from simulation.what_if.alone import LoneTimes
from simulation.what_if.baseline import Baseline
from simulation.what_if.clients import by_client
from simulation.what_if.fair_shares import FairShares, ServiceDemand
from simulation.what_if.front import NOISE, TOLERANCE, Unfairness, gap, pareto, ranked, recommended, slowdown
from simulation.what_if.reasons import reasons
from simulation.what_if.summary import HEADER, Summary, summarize
from simulation.what_if.waits import Waits


def record(number: int, client: str, outcome: Outcome = Outcome.COMPLETED, wait: float = 1.0) -> CallResult:
    done = outcome is Outcome.COMPLETED
    return CallResult(
        number=number,
        client=client,
        app="",
        interaction="",
        stage=0,
        last=True,
        arrival=0.0,
        admitted=None,
        first=wait if done else None,
        ended=10.0,
        input_tokens=100,
        cached_tokens=0,
        output_tokens=50 if done else 0,
        outcome=outcome,
    )


def made(*records: CallResult) -> SimulationRun:
    return SimulationRun(records, {}, 10.0, 3_000_000, None)


def baseline(*clients: str, capacity: float = 1000.0, unserved: Sequence[int] = ()) -> Baseline:
    """Each call asks for 200 cost units at once, and takes 2 s alone; there are 1000 of them, or `capacity`."""
    asks = {
        n: ServiceDemand(client, 0.0, 100.0, 100.0) for n, client in enumerate(clients, start=1) if n not in unserved
    }
    return Baseline(FairShares(asks, capacity, 1.0), {number: LoneTimes(0.5, 2.0) for number in asks})


def test_who_gets_nothing_waits_for_ever() -> None:
    refused = (record(number, "b", Outcome.THROTTLED_USER) for number in (3, 4))
    run = made(record(1, "a"), record(2, "a", wait=3.0), *refused)
    row = summarize("x", run, baseline(*"aabb"))
    assert (row.answered, row.refused, row.unanswered, row.least_answered) == (2, 2, ("b",), 0.0)
    assert (row.within.calls, row.within.slowdown_p99, row.within.ttft_p99) == (4, math.inf, math.inf)
    assert (row.within.ttft_mean, row.within.slowdown_mean) == (2.0, 5.0), "of the calls that were answered"


def test_who_asks_for_more_than_its_share_is_told_apart() -> None:
    """Of 600 cost units `a` asks for 200 and `b` for 1000."""
    run = made(record(1, "a"), *(record(number, "b", wait=9.0) for number in range(2, 7)))
    row = summarize("x", run, baseline(*"abbbbb", capacity=600.0))
    assert (row.within.calls, row.within.ttft_mean, row.above.calls, row.above.ttft_p99) == (1, 1.0, 5, 9.0)
    assert row.judged == row.within
    assert [(c.client, c.calls, c.asked, c.within) for c in by_client(run, baseline(*"abbbbb", capacity=600.0))] == [
        ("b", 5, 1000.0, 0.0),
        ("a", 1, 200.0, 1.0),
    ]


def test_where_all_ask_for_more_all_are_judged() -> None:
    row = summarize("x", made(record(1, "a"), record(2, "b", wait=3.0)), baseline("a", "b", capacity=10.0))
    assert (row.within.calls, row.judged.calls, row.judged.ttft_mean) == (0, 2, 2.0)
    assert row.within.cells() == (None,) * 6


def test_who_is_answered_rarely_is_told_and_what_nobody_could_serve_makes_nobody_slow() -> None:
    records = (record(1, "a"), record(2, "b"), *(record(n, "b", Outcome.REJECTED_TOO_LONG) for n in (3, 4, 5)))
    row = summarize("x", made(*records), baseline(*"abbbb", unserved=(3, 4, 5)))
    assert (row.unanswered, row.least_answered, row.within.slowdown_p99) == ((), 0.25, 5.0)


def test_nothing_answered_is_a_row_like_any_other() -> None:
    row = summarize("x", made(record(1, "a", Outcome.THROTTLED_APP)), baseline("a"))
    assert (row.service, row.within.ttft_p99, row.unanswered) == (0.0, math.inf, ("a",))
    assert len(row.cells()) == len(HEADER)


def test_a_reason_names_the_limit() -> None:
    run = made(record(1, "b", Outcome.THROTTLED_USER), *(record(n, "b", Outcome.REJECTED_TOO_LONG) for n in (2, 3)))
    said = "\n".join(reasons(run, ClusterSpec()))
    assert "2 rejected too long (max_prompt_tokens 65536, kv_tokens 100000)" in said
    assert "1 throttled user (user_per_minute 60)" in said


def summary(name: str, service: float, slow: float, gap: float = 0.0, unanswered: tuple[str, ...] = ()) -> Summary:
    waits = Waits(1, 0.0, 0.0, 0.0, 0.0, slow, slow)
    return Summary(
        name=name,
        within=waits,
        above=waits,
        answered=1,
        refused=len(unanswered),
        unanswered=unanswered,
        least_answered=0.0 if unanswered else 1.0,
        tokens=0.0,
        service=service,
        hits=0.0,
        jain=1.0,
        gap=gap,
        bound=None,
        seconds=1.0,
        of_clients=slow,
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    summaries = [summary(str(n), float(service), float(slow)) for n, (service, slow) in enumerate(points)]
    front = {(s.service, slowdown(s)) for s in pareto(summaries, slowdown)}
    beaten = {p for p in points for q in points if p != q and q[0] >= p[0] and q[1] <= p[1]}
    assert front == set(points) - beaten
    best = recommended(pareto(summaries, slowdown), slowdown)
    good = [service for service, slow in points if slow <= (1 + TOLERANCE) * min(slow for _, slow in points)]
    assert best.service >= (1 - NOISE) * max(good)


@pytest.mark.parametrize("unfairness", [slowdown, gap])
def test_who_leaves_a_client_out_is_on_no_front_and_ranks_last(unfairness: Unfairness) -> None:
    starving = summary("starving", 100.0, 1.0, unanswered=("b",))
    fair = summary("fair", 10.0, 5.0, gap=7.0)
    assert pareto([starving, fair], unfairness) == [fair]
    assert pareto([starving], unfairness) == []
    assert ranked([starving, fair]) == [fair, starving]


def test_each_notion_of_fairness_has_its_own_front() -> None:
    quick, even = summary("quick", 10.0, 1.0, gap=9.0), summary("even", 10.0, 2.0, gap=3.0)
    assert pareto([quick, even], slowdown) == [quick]
    assert pareto([quick, even], gap) == [even]


def test_speed_buys_no_rank_but_among_equals() -> None:
    fair, fast = summary("fair", 10.0, 1.0), summary("fast", 100.0, 8.0)
    assert ranked([fast, fair, summary("same", 11.0, 1.0)])[0].name == "same"
    assert recommended([fast, fair], slowdown) == fair


def test_of_the_fair_the_fastest_is_recommended() -> None:
    fairest, fastest, unfair = (
        summary("fairest", 10.0, 1.0),
        summary("fastest", 11.0, 1.05),
        summary("unfair", 12.0, 1.2),
    )
    assert recommended([unfair, fastest, fairest], slowdown) == fastest


def test_throughput_that_is_higher_by_noise_alone_recommends_nothing() -> None:
    fairer, faster = summary("fairer", 1000.0, 1.0), summary("faster", 1003.0, 1.05)
    assert recommended([faster, fairer], slowdown) == fairer


def test_each_client_counts_once_by_all_its_calls() -> None:
    """Of 600 cost units `a` asks for 200 and `b` for 1000: calls take 10 s and 2 s alone, but b's take 1 s here."""
    records = [record(1, "a"), *(replace(record(number, "b"), ended=1.0) for number in range(2, 7))]
    row = summarize("x", made(*records), baseline(*"abbbbb", capacity=600.0))
    assert row.within.calls == 1
    assert row.of_clients == pytest.approx(math.sqrt(5.0 * 0.5))


def test_a_client_within_its_share_that_is_refused_counts_as_one_that_waits_for_ever() -> None:
    records = [record(1, "a"), record(2, "a", Outcome.THROTTLED_USER), record(3, "b")]
    assert summarize("x", made(*records), baseline(*"aab")).of_clients == math.inf
    assert summarize("x", made(*records), baseline(*"aab", capacity=10.0)).of_clients == pytest.approx(5.0)


def test_figures_that_rest_on_few_calls_are_marked() -> None:
    few, many = summary("few", 1.0, 1.0), summary("many", 1.0, 1.0)
    many = replace(many, within=replace(many.within, calls=50))
    assert "rest on 1 calls: fewer than 50 say little" in summary_table([few, many])
    assert "say little" not in summary_table([many])

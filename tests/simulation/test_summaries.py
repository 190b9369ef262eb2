"""Configurations of one workload: what their rows say, and which no other beats."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.outcomes import Outcome
from simulation.reproduction.run import Record, Run
from simulation.spec import ClusterSpec
from simulation.what_if import HEADER, Summary, Unfairness, gap, pareto, reasons, recommended, summarize, waiting


def record(client: str, outcome: Outcome = Outcome.COMPLETED, wait: float = 1.0) -> Record:
    done = outcome is Outcome.COMPLETED
    return Record(
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


def made(*records: Record) -> Run:
    return Run(records, {}, 10.0, 3_000_000, None)


def test_who_gets_nothing_waits_for_ever() -> None:
    refused = record("b", Outcome.THROTTLED_USER)
    row = summarize("x", made(record("a"), record("a", wait=3.0), refused, refused, refused, refused))
    assert (row.answered, row.refused, row.unanswered, row.least_answered) == (2, 4, ("b",), 0.0)
    assert row.worst_client == math.inf
    assert row.ttft_p50 == 2.0, "of the calls that were answered"


def test_who_is_answered_rarely_is_told() -> None:
    row = summarize("x", made(record("a"), record("b"), *[record("b", Outcome.REJECTED_TOO_LONG)] * 3))
    assert (row.unanswered, row.least_answered, row.worst_client) == ((), 0.25, 1.0)


def test_nothing_answered_is_a_row_like_any_other() -> None:
    row = summarize("x", made(record("a", Outcome.REJECTED_TOO_LONG)))
    assert (row.service, row.ttft_p99, row.unanswered) == (0.0, math.inf, ("a",))
    assert len(row.cells()) == len(HEADER)


def test_a_reason_names_the_limit() -> None:
    run = made(record("a"), record("b", Outcome.THROTTLED_USER), *[record("b", Outcome.REJECTED_TOO_LONG)] * 2)
    said = "\n".join(reasons(run, ClusterSpec()))
    assert "2 rejected too long (max_prompt_tokens 65536, kv_tokens 100000)" in said
    assert "1 throttled user (user_per_minute 60)" in said


def summary(name: str, service: float, wait: float, gap: float = 0.0, unanswered: tuple[str, ...] = ()) -> Summary:
    return Summary(
        name=name,
        answered=1,
        refused=len(unanswered),
        unanswered=unanswered,
        least_answered=0.0 if unanswered else 1.0,
        tokens=0.0,
        service=service,
        hits=0.0,
        ttft_p50=0.0,
        ttft_p99=0.0,
        latency_p99=0.0,
        worst_client=wait,
        jain=None,
        gap=gap,
        bound=None,
        seconds=1.0,
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    summaries = [summary(str(n), float(service), float(wait)) for n, (service, wait) in enumerate(points)]
    front = {(s.service, s.worst_client) for s in pareto(summaries, waiting)}
    beaten = {p for p in points for q in points if p != q and q[0] >= p[0] and q[1] <= p[1]}
    assert front == set(points) - beaten
    best = recommended(pareto(summaries, waiting), waiting)
    assert best.service >= 0.95 * max(service for service, _ in points)


@pytest.mark.parametrize("unfairness", [waiting, gap])
def test_who_leaves_a_client_out_is_on_no_front(unfairness: Unfairness) -> None:
    starving = summary("starving", 100.0, math.inf, unanswered=("b",))
    fair = summary("fair", 10.0, 5.0, gap=7.0)
    assert pareto([starving, fair], unfairness) == [fair]
    assert pareto([starving], unfairness) == []


def test_each_notion_of_fairness_has_its_own_front() -> None:
    quick, even = summary("quick", 10.0, 1.0, gap=9.0), summary("even", 10.0, 2.0, gap=3.0)
    assert pareto([quick, even], waiting) == [quick]
    assert pareto([quick, even], gap) == [even]

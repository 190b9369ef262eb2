"""The service per second of a full worker, from counters and a clock alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.accounts.service_ledger import MEMORY_SECONDS, ServiceRate
from local_worker.core.batch import StepResult
from serving.cost import MICRO
from tests.unit.local_worker.engine.driving import make_batcher, make_request

TURNS = st.lists(st.tuples(st.floats(0.001, 20.0), st.integers(0, 10**9), st.booleans()), min_size=1, max_size=30)


def weighted_mean(turns: list[tuple[float, int, bool]]) -> float:
    """Definition: what was served while requests waited, and the seconds, both weighted by the age in such seconds."""
    gained = seconds = age = 0.0
    for length, served, is_full in reversed(turns):
        if is_full:
            gained += math.exp(-age / MEMORY_SECONDS) * served
            seconds += math.exp(-age / MEMORY_SECONDS) * length
            age += length
    return gained / seconds if seconds >= 1.0 else 0.0


@given(turns=TURNS)
def test_the_rate_is_a_mean_over_the_time_in_which_requests_wait_with_the_latest_counting_most(
    turns: list[tuple[float, int, bool]],
) -> None:
    rate, now, total = ServiceRate(), 0.0, 0
    for length, served, is_full in turns:
        rate.observe(total, is_full, now)
        now, total = now + length, total + served
    rate.observe(total, False, now)
    rate.check_invariants()
    assert rate.micro_per_second == pytest.approx(weighted_mean(turns))


def test_a_steady_rate_is_found_and_pauses_do_not_lower_it() -> None:
    rate = ServiceRate()
    for step in range(100):
        rate.observe(step * 50, True, step * 0.5)
    rate.observe(100 * 50, False, 50.0)
    assert rate.micro_per_second == pytest.approx(100.0)
    rate.observe(100 * 50, False, 10_000.0)
    assert rate.micro_per_second == pytest.approx(100.0)


def test_the_rate_is_zero_before_requests_have_waited_for_a_second() -> None:
    rate = ServiceRate()
    rate.observe(0, True, 0.0)
    rate.observe(500, True, 0.5)
    assert rate.micro_per_second == 0.0
    rate.observe(1100, True, 1.1)
    assert rate.micro_per_second == pytest.approx(1000.0, rel=0.01)


def test_service_while_nobody_waits_gives_no_rate_of_a_full_worker() -> None:
    """Three requests of 4 prompt and 8 output tokens, a step every half second: apart, and then together."""
    batcher, now = make_batcher(max_running=1), 0.0

    def serve() -> None:
        nonlocal now
        while (plan := batcher.plan(now)) is not None:
            batcher.commit(plan, StepResult(tuple(1 for piece in plan.batch.slices if piece.samples)))
            now += 0.5
            batcher.check_invariants()

    for number in range(3):
        batcher.queue.submit(make_request([number] * 4, arrival=number), now)
        serve()
        now += 100.0
    assert batcher.queue.rate.micro_per_second == 0.0
    for number in range(3, 13):
        batcher.queue.submit(make_request([number] * 4, arrival=number), now)
    serve()
    assert batcher.queue.rate.micro_per_second / MICRO == pytest.approx((4 + 2 * 8) / (8 * 0.5), rel=0.05)


def test_service_before_requests_waited_does_not_count() -> None:
    rate = ServiceRate()
    rate.observe(10, True, 1000.0)
    rate.observe(14, False, 1002.0)
    assert rate.micro_per_second == 2.0


def test_the_rate_is_known_after_one_second() -> None:
    rate = ServiceRate()
    rate.observe(0, True, 0.0)
    rate.observe(100, True, 1.0)
    assert rate.micro_per_second == 100.0

"""The delay of plans follows the time of steps, and a false expectation does not confirm itself."""

from collections.abc import Collection

import pytest

from local_worker.core.plan import MOST_DELAY, PLAN_SECONDS, PlanDelay, StepLoad, StepPace

STEP = 0.1
HOST = 0.003  # seconds that plan and launch take


def served(steps: int, slow: Collection[int] = ()) -> tuple[float, float]:
    """The part of the time in which a device idles, and the last delay, where the steps of the numbers `slow` take two
    seconds and all others STEP."""
    pace, delay, idle, total, seconds = StepPace(2048), PlanDelay(), 0.0, 0.0, 0.0
    for number in range(steps):
        load = StepLoad(1.0, 0.064, 0.01, 0.0) if number % 2 else StepLoad(1.0, 0.512, 0.01, 0.1)
        lasts = 2.0 if number in slow else STEP
        seconds = delay.seconds(pace.expected(load))
        seen = max(lasts, max(0.0, seconds) + HOST)  # the host sees an end when it has launched the next step
        if delay.ended(seen - max(0.0, seconds) - HOST):
            pace.observe(load, seen)
        idle, total = idle + seen - lasts, total + seen
    return idle / total, seconds


def test_steps_that_are_as_expected_are_planned_shortly_before_their_end() -> None:
    idle, seconds = served(200)
    assert idle == 0
    assert seconds == pytest.approx(MOST_DELAY * STEP - PLAN_SECONDS, rel=0.05)


@pytest.mark.parametrize("slow", [2, 4, 8, 16, 31])
def test_after_a_slow_beginning_the_device_idles_little(slow: int) -> None:
    idle, seconds = served(2000, range(0, 32, slow))
    assert idle < 0.1
    assert 0 < seconds < STEP


def test_without_a_delay_nothing_is_missed() -> None:
    delay = PlanDelay()
    assert delay.seconds(0.001) <= 0
    assert delay.ended(0.0)


def test_who_misses_an_end_plans_at_once() -> None:
    delay = PlanDelay()
    for _ in range(100):
        delay.seconds(STEP)
        assert delay.ended(HOST)
    assert delay.seconds(STEP) == pytest.approx(MOST_DELAY * STEP - PLAN_SECONDS)
    assert not delay.ended(0.0)
    assert delay.seconds(STEP) <= 0

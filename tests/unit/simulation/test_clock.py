"""Virtual time."""

from hypothesis import given
from hypothesis import strategies as st

from simulation.clock import VirtualClock


@given(st.lists(st.floats(0, 1e6)))
def test_events_come_in_order_of_time_and_ties_in_order_of_planning(times: list[float]) -> None:
    clock, seen = VirtualClock(), list[tuple[float, int]]()
    for number, time in enumerate(times):
        clock.at(time, lambda number=number: seen.append((clock.now, number)))  # type: ignore[misc]
    clock.run()
    assert seen == sorted((time, number) for number, time in enumerate(times))


def test_the_past_is_now_and_until_is_a_pause() -> None:
    clock, seen = VirtualClock(), list[float]()
    clock.at(5.0, lambda: clock.at(1.0, lambda: seen.append(clock.now)))
    clock.at(9.0, lambda: seen.append(clock.now))
    clock.run(until=7.0)
    assert seen == [5.0]
    clock.run()
    assert seen == [5.0, 9.0]

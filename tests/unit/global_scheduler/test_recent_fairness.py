"""Jain's index of late, against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.core.recent_fairness import RecentFairness
from serving.names import tenant_of
from serving.statistics import jain_index

WINDOW = 4
CLIENTS = "abc"
# What each client gains in a second, and whether it waits at its end.
SECONDS = st.lists(st.tuples(*(st.tuples(st.integers(0, 9), st.booleans()) for _ in CLIENTS)), max_size=20)


def one_group(client: str) -> str:
    return ""


@given(seconds=SECONDS)
def test_it_compares_who_waited_all_the_window(seconds: list[tuple[tuple[int, bool], ...]]) -> None:
    fairness = RecentFairness(WINDOW)
    total = dict.fromkeys(CLIENTS, 0.0)
    history = []
    for at, second in enumerate(seconds):
        total = {c: total[c] + gained for c, (gained, _) in zip(CLIENTS, second, strict=True)}
        history.append((total, [c for c, (_, waits) in zip(CLIENTS, second, strict=True) if waits]))
        fairness.observe(history[-1][1], total.__getitem__, one_group, float(at))
        fairness.check_invariants()
        end = at - at % WINDOW  # of the last full window
        if end:
            window = history[end - WINDOW : end + 1]
            always = [c for c in CLIENTS if all(c in waiting for _, waiting in window)]
            gains = [window[-1][0][c] - window[0][0][c] for c in always]
            assert fairness.clients == (len(always) if len(always) > 1 else 0)
            assert fairness.index == (jain_index(gains) if len(gains) > 1 else None)


def test_before_the_first_window_nobody_is_compared() -> None:
    fairness = RecentFairness(WINDOW)
    assert (fairness.index, fairness.clients) == (None, 0)


def test_a_worker_that_was_replaced_took_nothing_back() -> None:
    fairness = RecentFairness(1.0)
    fairness.observe("ab", {"a": 100.0, "b": 0.0}.__getitem__, one_group, 0.0)
    fairness.observe("ab", {"a": 0.0, "b": 5.0}.__getitem__, one_group, 1.0)
    assert fairness.index == 0.5


def test_users_of_different_tenants_are_not_compared() -> None:
    fairness = RecentFairness(1.0)
    weighted = {"many/a": 0.0, "many/b": 0.0, "many/c": 0.0, "few/one": 0.0}
    fairness.observe(weighted, dict(weighted).__getitem__, tenant_of, 0.0)
    weighted |= {"many/a": 10.0, "many/b": 10.0, "many/c": 10.0, "few/one": 900.0}
    fairness.observe(weighted, dict(weighted).__getitem__, tenant_of, 1.0)
    assert (fairness.index, fairness.clients) == (1.0, 3)
    weighted["many/a"] += 100.0
    fairness.observe(weighted, dict(weighted).__getitem__, tenant_of, 2.0)
    assert fairness.index is not None
    assert fairness.index < 0.5, "the least index of all groups"
    fairness.check_invariants()

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.metrics import jain_index, percentile, service_gap

STEPS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=12)


@given(STEPS)
def test_service_gap_is_the_largest_over_all_intervals(steps: list[dict[str, int]]) -> None:
    totals = dict.fromkeys("abc", 0)
    samples: list[tuple[float, dict[str, float]]] = []
    for time, step in enumerate(steps):
        for client, service in step.items():
            totals[client] += service
        samples.append((time, {client: totals[client] for client in step}))
    gaps = [0.0]
    for f, g in combinations("abc", 2):
        for first, last in combinations(range(len(samples)), 2):
            inside = [services for _, services in samples[first : last + 1]]
            if all(f in services and g in services for services in inside):
                gaps.append(abs((inside[-1][f] - inside[0][f]) - (inside[-1][g] - inside[0][g])))
    assert service_gap(samples) == max(gaps)


def test_service_gap_by_hand() -> None:
    # a runs ahead by 10, then b catches up by 25: the largest gap is over the second interval alone.
    assert service_gap([(0, {"a": 0, "b": 0}), (1, {"a": 10, "b": 0}), (2, {"a": 10, "b": 25})]) == 25


def test_jain_index() -> None:
    assert jain_index([3, 3, 3]) == 1
    assert jain_index([5, 0, 0, 0]) == 0.25
    assert jain_index([0, 0]) == 1
    assert jain_index([1, 2, 3]) == pytest.approx(36 / 42)
    for bad in ([], [1, -1]):
        with pytest.raises(ValueError, match="at least one value"):
            jain_index(bad)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_jain_index_is_within_its_range(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


def test_percentile() -> None:
    assert [percentile([4, 1, 3, 2], q) for q in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile([7], 99) == 7
    for values, q in (([], 50), ([1], 101), ([1], -1)):
        with pytest.raises(ValueError, match="0 <= q <= 100"):
            percentile(values, q)

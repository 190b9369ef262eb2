import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.statistics import jain_index, percentile


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

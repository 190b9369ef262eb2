"""The estimate of the most memory that a batch will need, against counting it out."""

from hypothesis import given
from hypothesis import strategies as st

from lab.reproduction.peak_memory_estimate import PeakMemoryEstimate, Size

SIZES = st.tuples(st.integers(0, 12), st.integers(1, 20))


def most(sizes: list[Size]) -> int:
    """Tokens held at the fullest: one more per request and step, and everybody leaves when nothing is left."""
    fullest = 0
    for step in range(max(left for left, _ in sizes) + 1):
        fullest = max(fullest, sum(tokens + step for left, tokens in sizes if left >= step))
    return fullest


@given(batch=st.lists(SIZES, max_size=7), entering=SIZES, data=st.data())
def test_it_is_what_counting_step_by_step_gives(batch: list[Size], entering: Size, data: st.DataObject) -> None:
    steps = data.draw(st.integers(0, min((left for left, _ in batch), default=9)))
    then = [(left - steps, tokens + steps) for left, tokens in batch]
    assert PeakMemoryEstimate(batch, ()).most(entering, steps) == most([*then, entering])

"""The gateway's own choice of a worker, beside what is obviously the choice."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.least_loaded import least_loaded, no_worker


class Worker(NamedTuple):
    instance: str
    load: int


WORKERS = st.lists(st.builds(Worker, st.sampled_from("abcd"), st.integers(0, 2)), max_size=4)


@given(WORKERS, st.sets(st.sampled_from("abcd")))
def test_the_first_of_the_least_loaded_that_are_not_excluded(workers: list[Worker], excluded: set[str]) -> None:
    left = [worker for worker in workers if worker.instance not in excluded]
    expected = sorted(left, key=lambda worker: worker.load)[0] if left else None
    assert least_loaded(workers, excluded, lambda worker: worker.load) is expected


@pytest.mark.parametrize(
    ("serving", "message"),
    [
        ("", "no live worker serves model 'm'"),
        ("c", "no live worker serves model 'm'"),  # the scheduler does not want it
        ("ac", "no live worker serves model 'm'"),
        ("a", "the only worker of model 'm' had the request, and was lost or refused to continue it"),
        ("ab", "each of the 2 workers of model 'm' had the request, and was lost or refused to continue it"),
    ],
)
def test_the_error_says_whether_there_are_workers(serving: str, message: str) -> None:
    error = no_worker("m", [Worker(instance, 0) for instance in serving], ["a", "b"])
    assert error.message == message

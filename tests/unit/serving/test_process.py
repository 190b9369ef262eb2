"""The start of a process."""

import resource
from collections.abc import Iterator

import pytest

from serving.process import DESCRIPTORS, raise_descriptor_limit


@pytest.fixture
def hard() -> Iterator[int]:
    """A process with few descriptors, of which it may have more; yields how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_takes_the_descriptors_that_it_may_have(hard: int) -> None:
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, DESCRIPTORS), hard)

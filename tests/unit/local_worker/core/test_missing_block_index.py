"""Waiting requests by the block that they miss: who is looked up when it is cached, a bounded number at a time."""

from local_worker.core.policies.prefix_match_queue import MissingBlockIndex
from local_worker.core.request import Request
from tests.unit.local_worker.core.test_prefix_match_queue import waiting

BLOCK = 16  # tokens


class Waiting:
    """An index of requests by their names, each of which misses its first block."""

    def __init__(self, **first_blocks: int) -> None:
        self.index = MissingBlockIndex(BLOCK)
        self.requests: dict[str, Request] = {}
        for name, block in first_blocks.items():
            self.requests[name] = waiting(len(self.requests), digests=[block, 100])
            self.index.arrived(self.requests[name], 0)

    def take(self, most: int) -> str:
        """Return the names of those that are looked up."""
        names = {request: name for name, request in self.requests.items()}
        taken = "".join(names[request] for request in self.index.take(most))
        self.index.check_invariants([*self.requests.values()])
        return taken

    def find(self, names: str) -> None:
        """Record that the lookups of these requests found their first block."""
        for name in names:
            self.index.place(self.requests[name], BLOCK)


def test_those_that_miss_a_block_are_looked_up_once_it_is_cached_so_many_at_a_time() -> None:
    them = Waiting(a=7, b=7, c=7, d=8, e=9)
    them.index.cached([7, 6, 8])
    for most, taken in ((2, "ab"), (2, "cd"), (2, "")):
        assert them.take(most) == taken
        them.find(taken)


def test_no_more_are_taken_than_asked_for_where_several_blocks_are_cached() -> None:
    them = Waiting(a=7, b=8, c=8, d=8)
    them.index.cached([7, 8])
    for taken in ("ab", "cd"):
        assert them.take(2) == taken
        them.find(taken)


def test_the_rest_of_a_block_that_was_evicted_again_is_not_looked_up() -> None:
    them = Waiting(a=7, b=7, c=7, d=7, e=8)
    them.index.cached([7, 8])
    assert them.take(3) == "abc"
    them.find("ab")
    assert them.take(3) == "e", "the last that was looked up still misses it"


def test_a_request_waits_for_the_block_behind_those_that_it_matches() -> None:
    them = Waiting(a=7, b=7)
    them.find("a")
    them.index.cached([7])
    assert them.take(2) == "b"
    them.index.cached([100])
    assert them.take(2) == "a"
    late = waiting(9, digests=[7, 8])
    them.index.arrived(late, BLOCK)
    them.index.cached([8])
    assert them.index.take(2) == [late]
    them.index.left(late)
    them.index.check_invariants([*them.requests.values()])

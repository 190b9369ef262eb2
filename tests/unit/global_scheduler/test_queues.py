"""Queue sizes against a scan over all workers."""

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from global_scheduler.core.fleet import UNITS, OutstandingTable, level, slots

LENGTHS, CAPACITIES = st.integers(0, 100_000), st.integers(1, 512)


@given(LENGTHS, CAPACITIES, LENGTHS, CAPACITIES)
@example(7, 512, 8, 512)
def test_levels_order_queues_by_length_per_capacity(a: int, a_capacity: int, b: int, b_capacity: int) -> None:
    """Never the wrong way round, and one level only for queues that differ by less than 1/256."""
    low, high = sorted([(Fraction(a, a_capacity), a, a_capacity), (Fraction(b, b_capacity), b, b_capacity)])
    first, second = level(*low[1:]), level(*high[1:])
    assert first <= second
    if high[0] - low[0] > low[0] / 256 + Fraction(1, UNITS):
        assert first < second


@given(st.integers(0, 255), st.integers(1, UNITS))
def test_one_more_request_counts_up_to_256_whatever_the_capacity(length: int, capacity: int) -> None:
    assert level(length, capacity) < level(length + 1, capacity)


def test_the_first_requests_spread_over_workers_with_many_places() -> None:
    queues = OutstandingTable()
    for slot in range(4):
        queues.join(slot, 256)
    chosen = []
    for _ in range(12):
        chosen.append(queues.least(0b1111))
        queues.add(chosen[-1], 1)
    assert chosen == [0, 1, 2, 3] * 3


class QueuesMachine(RuleBasedStateMachine):
    """Twelve workers of two capacities that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = OutstandingTable()
        self.lengths: dict[int, int] = {}

    @rule(slot=st.integers(0, 11))
    def joins_or_leaves(self, slot: int) -> None:
        if slot in self.lengths:
            del self.lengths[slot]
            self.queues.leave(slot)
        else:
            self.lengths[slot] = 0
            self.queues.join(slot, 4 + 4 * (slot % 2))

    @precondition(lambda self: self.lengths)
    @rule(pick=st.integers(0, 99), requests=st.integers(-3, 6))
    def changes(self, pick: int, requests: int) -> None:
        slot = sorted(self.lengths)[pick % len(self.lengths)]
        requests = max(requests, -self.lengths[slot])
        self.lengths[slot] += requests
        self.queues.add(slot, requests)

    @precondition(lambda self: self.lengths)
    @rule(mask=st.integers(1, 2**12 - 1))
    def least(self, mask: int) -> None:
        asked = [slot for slot in sorted(self.lengths) if mask >> slot & 1]
        if asked:
            found = self.queues.least(sum(1 << slot for slot in asked))
            assert found == min(asked, key=lambda slot: (level(self.lengths[slot], 4 + 4 * (slot % 2)), slot))

    @invariant()
    def holds(self) -> None:
        self.queues.check_invariants()
        for slot, length in self.lengths.items():
            capacity = 4 + 4 * (slot % 2)
            assert (self.queues.length(slot), self.queues.load(slot)) == (length, (length, capacity))
            assert self.queues.is_full(slot) == (length >= capacity)
            for other, other_length in self.lengths.items():
                grown = Fraction(other_length + 1, 4 + 4 * (other % 2))
                assert self.queues.outgrows(slot, other) == (Fraction(length, capacity) > Fraction(3, 2) * grown)


TestQueues = QueuesMachine.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_many_workers_are_not_asked_one_by_one() -> None:
    queues = OutstandingTable()
    for slot in range(100):
        queues.join(slot, 10)
        queues.add(slot, 1 + slot % 7)
    assert queues.least(2**100 - 1) == 0
    assert queues.least(2**100 - 1 & ~(2**50 - 1)) == 56
    queues.add(99, -2)
    assert queues.least(2**100 - 1) == 99
    with pytest.raises(ValueError, match="no worker"):
        queues.least(2**200 - 2**101)


@given(st.sets(st.integers(0, 200)))
def test_slots_of_a_mask(members: set[int]) -> None:
    assert slots(sum(1 << slot for slot in members)) == sorted(members)

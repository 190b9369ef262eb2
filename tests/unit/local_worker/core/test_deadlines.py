"""Deadlines, compared with a list that is sorted at every call."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_worker.core.queue import SPARE, Deadlines
from local_worker.core.request import Request
from tests.unit.local_worker.engine.driving import make_request


class DeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines()
        self.requests: list[Request] = []
        self.arrivals = 0

    @rule(deadline=st.none() | st.integers(0, 9), count=st.integers(1, 30))
    def add(self, deadline: int | None, count: int) -> None:
        for _ in range(count):
            request = make_request([1], arrival=self.arrivals)
            request.deadline = deadline
            self.arrivals += 1
            self.deadlines.add(request)
            self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, 60))
    def discard(self, data: st.DataObject, count: int) -> None:
        start = data.draw(st.integers(0, len(self.requests) - 1))
        for request in self.requests[start : start + count]:
            self.deadlines.discard(request)
        del self.requests[start : start + count]

    @rule(now=st.integers(-1, 9))
    def take(self, now: int) -> None:
        passed = [each for each in self.requests if each.deadline is not None and each.deadline <= now]
        passed.sort(key=lambda each: (each.deadline, each.arrival))
        assert self.deadlines.take_passed(now) == passed
        self.requests = [each for each in self.requests if each not in passed]

    @invariant()
    def knows_the_next(self) -> None:
        self.deadlines.check_invariants()
        assert self.deadlines.next() == min((r.deadline for r in self.requests if r.deadline is not None), default=None)


def watched(deadlines: Deadlines, count: int, deadline: float) -> list[Request]:
    requests = [make_request([1], arrival=number) for number in range(count)]
    for request in requests:
        request.deadline = deadline
        deadlines.add(request)
    return requests


def test_the_heap_is_rebuilt_when_most_of_it_was_removed_and_not_before() -> None:
    deadlines = Deadlines()
    requests = watched(deadlines, 100, 1.0)
    for request in requests[:58]:
        deadlines.discard(request)
    assert len(deadlines._heap) == 100 == 2 * 42 + SPARE
    deadlines.discard(requests[58])
    assert len(deadlines._heap) == 41


def test_the_heap_is_rebuilt_when_most_of_what_was_watched_has_passed() -> None:
    deadlines = Deadlines()
    passing, _, removed = (watched(deadlines, count, due) for count, due in ((10, 1.0), (1, 2.0), (27, 3.0)))
    for request in removed:
        deadlines.discard(request)
    assert deadlines.take_passed(1.0) == passing
    deadlines.check_invariants()


TestDeadlines = DeadlinesMachine.TestCase
TestDeadlines.settings = settings(max_examples=40)

"""Fair queueing, compared with a naive model, and its two guarantees."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.core.fair_queue import FairQueue

CLIENTS = st.sampled_from("abc")
COSTS = st.integers(1, 20)
Item = tuple[str, int, int]  # client, cost, number


class Naive:
    """The same tags, of lists and of clients that are never forgotten."""

    def __init__(self) -> None:
        self.clock = 0
        self.waiting: list[Item] = []
        self.start: dict[str, int] = {}

    def put(self, item: Item) -> None:
        if all(client != item[0] for client, _, _ in self.waiting):
            self.start[item[0]] = max(self.clock, self.start.get(item[0], 0))
        self.waiting.append(item)

    def heads(self) -> list[Item]:
        return list({client: (client, cost, number) for client, cost, number in reversed(self.waiting)}.values())

    def finish(self, item: Item) -> int:
        return self.start[item[0]] + item[1]

    def take(self) -> list[Item]:
        """All that may be taken now, of which the queue chooses."""
        earliest = min(map(self.finish, self.heads()), default=0)
        return [item for item in self.heads() if self.finish(item) == earliest]

    def taken(self, item: Item) -> None:
        self.clock = max(self.clock, min(self.start[client] for client, _, _ in self.heads()))
        self.start[item[0]] = self.finish(item)
        self.waiting.remove(item)

    def forget(self) -> None:
        self.clock, self.start = 0, {}


class Comparison(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue, self.naive, self.number = FairQueue[Item](), Naive(), 0

    @rule(client=CLIENTS, cost=COSTS)
    def put(self, client: str, cost: int) -> None:
        self.number += 1
        item = (client, cost, self.number)
        self.queue.put(client, cost, item)
        self.naive.put(item)

    @rule()
    def take(self) -> None:
        allowed = self.naive.take()
        item = self.queue.take()
        if item is None:
            assert not allowed
            self.naive.forget()
        else:
            assert item in allowed
            self.naive.taken(item)

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.naive.waiting))
        self.queue.withdraw(item[0], item)
        self.naive.waiting.remove(item)

    @invariant()
    def agree(self) -> None:
        self.queue.check_invariants()
        assert len(self.queue) == len(self.naive.waiting)


TestComparison = Comparison.TestCase


def filled(costs: dict[str, list[int]]) -> FairQueue[Item]:
    queue = FairQueue[Item]()
    for client, own in costs.items():
        for number, cost in enumerate(own):
            queue.put(client, cost, (client, cost, number))
    return queue


def drained(queue: FairQueue[Item]) -> list[Item]:
    return list(iter(queue.take, None))


@given(st.dictionaries(CLIENTS, st.lists(COSTS, min_size=1, max_size=30), min_size=2))
def test_backlogged_clients_get_equal_totals_up_to_their_largest_costs(costs: dict[str, list[int]]) -> None:
    served, left = Counter[str](), Counter({client: len(own) for client, own in costs.items()})
    history = [served.copy()]
    for client, cost, _ in drained(filled(costs)):
        served[client] += cost
        left[client] -= 1
        history.append(served.copy())
        if not left[client]:
            break  # from here on one of them does not wait any more
    for start in range(len(history)):
        gained = history[-1] - history[start]
        for one in costs:
            for other in costs:
                assert abs(gained[one] - gained[other]) <= 2 * max(map(max, costs.values()))


@given(st.dictionaries(CLIENTS, st.lists(COSTS, min_size=1, max_size=30)), st.integers(0, 40), COSTS)
def test_before_a_small_item_little_is_taken_from_any_other_client(
    costs: dict[str, list[int]], before: int, cost: int
) -> None:
    queue = filled(costs)
    for _ in range(before):
        queue.take()
    queue.put("small", cost, ("small", cost, 0))
    order = drained(queue)
    ahead = Counter[str]()
    for client, own, _ in order[: order.index(("small", cost, 0))]:
        ahead[client] += own
    assert all(total <= cost for total in ahead.values())


@pytest.mark.parametrize("taken", range(19))
def test_a_short_prompt_goes_before_all_long_ones_of_others(taken: int) -> None:
    queue = filled({f"user {number}": [4096] for number in range(20)})
    for _ in range(taken):
        queue.take()
    queue.put("honest", 10, ("honest", 10, 0))
    assert queue.take() == ("honest", 10, 0)


def test_a_cost_must_be_positive() -> None:
    with pytest.raises(ValueError, match="cost: must be positive, got 0"):
        FairQueue[str]().put("a", 0, "x")


def test_idle_clients_are_forgotten_once_the_clock_has_passed_them() -> None:
    queue = filled({"busy": [1] * 200})
    for number in range(100):
        queue.put(str(number), 1, (str(number), 1, 0))
        queue.take()
        queue.take()
        assert len(queue._next_starts) <= 2

"""The request that is dropped when the queue is full, compared with a model that searches all requests."""

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.longest_queue_drop import LongestQueueDrop
from local_worker.core.request import Request
from tests.local_worker.engine.driving import make_request


def request_of(client: str, arrival: int, *, protected: bool = False) -> Request:
    request = make_request([1], arrival=arrival)
    request.client, request.in_interaction = client, protected
    return request


def candidates(waiting: list[Request], request: Request) -> set[Request]:
    """Return every request that may be chosen; the class decides ties between clients."""
    droppable = [other for other in waiting if not other.in_interaction]
    lengths = {other.client: sum(each.client == other.client for each in droppable) for other in droppable}
    longest = max(lengths.values(), default=0)
    if longest <= (0 if request.in_interaction else lengths.get(request.client, 0)):
        return set()
    clients = [client for client, length in lengths.items() if length == longest]
    return {[other for other in droppable if other.client == client][-1] for client in clients}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=60))
def test_agrees_with_a_search_of_all_requests(steps: list[tuple[str, bool, int]]) -> None:
    queue_drop, waiting = LongestQueueDrop(), list[Request]()
    for arrival, (client, protected, leaver) in enumerate(steps):
        request = request_of(client, arrival, protected=protected)
        expected = candidates(waiting, request)
        chosen = queue_drop.request_to_drop_for(request)
        assert chosen in expected if expected else chosen is None
        queue_drop.add(request)
        waiting.append(request)
        if leaver < 4 and leaver < len(waiting):
            queue_drop.discard(waiting.pop(leaver))
        queue_drop.check_invariants()


def test_only_the_flooding_client_loses_its_newest_request() -> None:
    queue_drop = LongestQueueDrop()
    flood = [request_of("flooder", number) for number in range(5)]
    for request in (*flood, request_of("quiet", 9)):
        queue_drop.add(request)
    assert queue_drop.request_to_drop_for(request_of("new", 10)) is flood[-1]
    assert queue_drop.request_to_drop_for(request_of("flooder", 11)) is None
    assert queue_drop.request_to_drop_for(request_of("flooder", 11, protected=True)) is flood[-1]


def test_a_request_that_ran_at_another_worker_is_never_dropped() -> None:
    queue_drop, moved = LongestQueueDrop(), request_of("a", 1)
    moved.seed_position = 3
    queue_drop.add(moved)
    assert queue_drop.request_to_drop_for(request_of("b", 2)) is None
    queue_drop.discard(moved)

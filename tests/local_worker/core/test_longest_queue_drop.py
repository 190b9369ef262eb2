"""The request that is dropped when the queue is full, compared with a model that searches all requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.fairness_levels import FairnessLevels
from local_worker.core.longest_queue_drop import LongestQueueDrop
from local_worker.core.request import Request
from tests.local_worker.engine.driving import make_request


def request_of(client: str, arrival: int, *, protected: bool = False) -> Request:
    request = make_request([1], arrival=arrival)
    request.client, request.in_interaction = client, protected
    return request


def candidates(levels: FairnessLevels, waiting: list[Request], request: Request) -> set[Request]:
    """Return every request that may be chosen; the class decides ties between accounts."""
    droppable = [other for other in waiting if not other.in_interaction]
    own = levels.path(request)
    for depth in range(len(levels)):
        siblings = [other for other in droppable if levels.path(other)[:depth] == own[:depth]]
        of_own = [other for other in siblings if levels.path(other)[depth] == own[depth]]
        longest = longest_below(levels, siblings, depth)
        if longest and len(longest[0]) > (0 if request.in_interaction else len(of_own)):
            for below in range(depth + 1, len(levels)):
                longest = [queue for above in longest for queue in longest_below(levels, above, below)]
            return {queue[-1] for queue in longest}
    return set()


def longest_below(levels: FairnessLevels, requests: list[Request], depth: int) -> list[list[Request]]:
    """Return the longest queues of the accounts at `depth` in the paths of `requests`."""
    queues: dict[str, list[Request]] = {}
    for request in requests:
        queues.setdefault(levels.path(request)[depth], []).append(request)
    most = max(map(len, queues.values()), default=0)
    return [queue for queue in queues.values() if len(queue) == most]


@pytest.mark.parametrize("text", ["user", "tenant,user", "tenant,user,interaction"])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("s", "s/u", "s/v", "t", "t/u")), st.sampled_from("ij"), st.booleans(), st.integers(0, 9)
        ),
        max_size=60,
    )
)
def test_agrees_with_a_search_of_all_requests(text: str, steps: list[tuple[str, str, bool, int]]) -> None:
    levels = FairnessLevels.parse(text)
    queue_drop, waiting = LongestQueueDrop(levels), list[Request]()
    for arrival, (client, interaction, protected, leaver) in enumerate(steps):
        request = request_of(client, arrival, protected=protected)
        request.interaction = interaction
        expected = candidates(levels, waiting, request)
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


def test_a_tenant_with_many_users_loses_a_request_of_its_longest_user() -> None:
    queue_drop = LongestQueueDrop(FairnessLevels.parse("tenant,user"))
    many = [request_of(f"many/{number}", number) for number in range(4)]
    long = request_of("many/0", 4)
    few = [request_of("few/one", number) for number in range(5, 8)]
    for request in (*many, long, *few):
        queue_drop.add(request)
    assert queue_drop.request_to_drop_for(request_of("few/one", 9)) is long, "few/one has the longest queue of a user"
    assert queue_drop.request_to_drop_for(request_of("many/1", 9)) is long, "within the longest tenant"
    assert queue_drop.request_to_drop_for(request_of("many/0", 9)) is None


def test_a_request_that_ran_at_another_worker_is_never_dropped() -> None:
    queue_drop, moved = LongestQueueDrop(), request_of("a", 1)
    moved.seed_position = 1
    queue_drop.add(moved)
    assert queue_drop.request_to_drop_for(request_of("b", 2)) is None
    queue_drop.discard(moved)

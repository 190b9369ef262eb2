"""The waiting queue: the limits, the request that is dropped, and that only waiting requests are dropped."""

from dataclasses import replace

import pytest

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.fairness_levels import FairnessLevels
from local_worker.core.limits import BatchLimits
from local_worker.core.request import Request
from local_worker.core.waiting_queue import WaitingQueue
from tests.local_worker.engine.driving import make_request

LIMITS = BatchLimits(max_running=1, token_budget=1, max_prompt_tokens=9, max_waiting=3, max_waiting_per_client=2)


def request_of(client: str, arrival: int) -> Request:
    request = make_request([1], arrival=arrival)
    request.client = client
    return request


def full() -> tuple[WaitingQueue, list[Request]]:
    """Two of a, one of b."""
    queue, requests = WaitingQueue(LIMITS), [request_of("a", 0), request_of("b", 1), request_of("a", 2)]
    for since, request in enumerate(requests):
        assert queue.request_to_drop_for(request) is None
        queue.add(request, float(since))
    return queue, requests


def test_a_full_queue_names_the_request_to_drop_and_changes_nothing() -> None:
    queue, requests = full()
    assert queue.request_to_drop_for(request_of("c", 3)) is requests[2]
    assert [*queue] == requests
    with pytest.raises(QueueFull, match="3 requests are waiting; the limit is 3"):
        queue.request_to_drop_for(request_of("a", 3))
    queue.check_invariants()


def test_a_client_has_a_limit_of_its_own() -> None:
    queue, _ = full()
    queue.check_limits(request_of("a", 3), 1)
    with pytest.raises(ClientLimit, match="2 requests waiting; the limit is 2"):
        queue.check_limits(request_of("a", 3), 2)


def test_a_tenants_requests_that_are_never_dropped_leave_places_to_other_tenants() -> None:
    limits = replace(LIMITS, max_waiting=8)
    queue = WaitingQueue(limits, FairnessLevels.parse("tenant,user"))
    protected = [request_of(f"many/{number}", number) for number in range(5)]
    for request in protected:
        request.in_interaction = True
    for request in protected[:4]:
        queue.check_limits(request, 0)
        queue.add(request, 0.0)
    with pytest.raises(ClientLimit, match=r"'many' has 4 requests waiting that are never dropped.* the limit is 4"):
        queue.check_limits(protected[4], 0)
    other = request_of("few/one", 6)
    other.in_interaction = True
    queue.check_limits(other, 0)
    queue.check_limits(request_of("many/0", 7), 1)
    queue.check_invariants()
    queue.remove(protected[0])
    queue.check_limits(protected[4], 0)
    queue.check_invariants()


def test_a_preempted_request_is_never_dropped() -> None:
    queue, requests = full()
    for request in requests:
        queue.remove(request)
    assert queue.oldest_since is None
    queue.put_back(requests[0], 7.0)
    for request in requests[1:]:
        queue.add(request, 8.0)
    assert (queue.oldest_since, [*queue]) == (7.0, requests)
    assert queue.request_to_drop_for(request_of("c", 3)) is requests[1]
    queue.remove(requests[1])
    assert (requests[1] in queue, len(queue)) == (False, 2)
    queue.check_invariants()


def test_requests_that_are_never_dropped_leave_places_whichever_account_has_them() -> None:
    queue = WaitingQueue(replace(LIMITS, max_waiting=8), FairnessLevels.parse("tenant,user"))
    for tenant, places in (("first", 3), ("second", 3)):
        for number in range(places):
            request = request_of(f"{tenant}/{number}", number)
            request.in_interaction = True
            queue.check_limits(request, 0)
            queue.add(request, 0.0)
    request = request_of("second/3", 3)
    request.in_interaction = True
    with pytest.raises(ClientLimit, match=r"'second' has 3 .* the limit is 2, the places without such requests"):
        queue.check_limits(request, 0)


def test_the_queue_is_as_old_as_a_preempted_request_in_it() -> None:
    queue, preempted = WaitingQueue(LIMITS), request_of("a", 0)
    preempted.preemptions = 1
    queue.put_back(preempted, 1.0)
    assert queue.oldest_since == 1.0
    queue.add(request_of("b", 1), 2.0)
    assert queue.oldest_since == 1.0
    queue.remove(preempted)
    assert queue.oldest_since == 2.0

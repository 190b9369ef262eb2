"""The waiting queue: the limits, the request that is dropped, and that only waiting requests are dropped."""

from dataclasses import replace

import pytest

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.accounts.tree import FLAT, AccountTree, FairnessLevels
from local_worker.core.limits import BatchLimits
from local_worker.core.request import Request
from local_worker.core.waiting_queue import WaitingQueue
from tests.unit.local_worker.engine.driving import make_request

LIMITS = BatchLimits(max_running=1, token_budget=1, max_prompt_tokens=9, max_waiting=3, max_waiting_per_client=2)


class Queue:
    """A queue with the accounts of its requests."""

    def __init__(self, limits: BatchLimits = LIMITS, levels: FairnessLevels = FLAT) -> None:
        self.accounts = AccountTree(levels)
        self.waiting = WaitingQueue(limits, self.accounts)

    def request_of(self, client: str, arrival: int, *, exempt: bool = False) -> Request:
        request = make_request([1], arrival=arrival)
        request.client, request.is_exempt = client, exempt
        request.path = self.accounts.path(request)
        return request

    def add(self, request: Request, now: float = 0.0) -> None:
        self.accounts.arrived(request)
        self.waiting.add(request, now)

    def start(self, request: Request) -> None:
        self.waiting.remove(request)
        self.accounts.admitted(request)

    def put_back(self, request: Request, now: float) -> None:
        request.preemptions += 1
        self.accounts.preempted(request)
        self.waiting.put_back(request, now)

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)
        self.accounts.withdrawn(request)


def full() -> tuple[Queue, list[Request]]:
    """Two of a, one of b."""
    queue = Queue()
    requests = [queue.request_of(client, number) for number, client in enumerate("aba")]
    for since, request in enumerate(requests):
        assert queue.waiting.request_to_drop_for(request) is None
        queue.add(request, float(since))
    return queue, requests


def test_a_full_queue_names_the_request_to_drop_and_changes_nothing() -> None:
    queue, requests = full()
    assert queue.waiting.request_to_drop_for(queue.request_of("c", 3)) is requests[2]
    assert [*queue.waiting] == requests
    with pytest.raises(QueueFull, match="3 requests are waiting; the limit is 3"):
        queue.waiting.request_to_drop_for(queue.request_of("a", 3))
    queue.waiting.check_invariants()


def test_requests_of_both_classes_wait() -> None:
    queue = Queue()
    for number, is_background in enumerate((False, True)):
        request = queue.request_of("a", number)
        request.background = is_background
        queue.add(request)
    assert (len(queue.waiting), queue.waiting.background) == (2, 1)


def test_only_the_flooding_client_loses_its_newest_request() -> None:
    queue = Queue(replace(LIMITS, max_waiting=6))
    flood = [queue.request_of("flooder", number) for number in range(5)]
    for request in (*flood, queue.request_of("quiet", 9)):
        queue.add(request)
    assert queue.waiting.request_to_drop_for(queue.request_of("new", 10)) is flood[-1]
    assert queue.waiting.request_to_drop_for(queue.request_of("flooder", 11, exempt=True)) is flood[-1]
    with pytest.raises(QueueFull):
        queue.waiting.request_to_drop_for(queue.request_of("flooder", 11))
    queue.remove(flood[-1])
    queue.add(queue.request_of("quiet", 12))
    assert queue.waiting.request_to_drop_for(queue.request_of("new", 13)) is flood[-2]
    queue.waiting.check_invariants()


def test_a_client_has_a_limit_of_its_own() -> None:
    limits = replace(LIMITS, max_waiting=9)
    queue = Queue(limits, FairnessLevels.parse("tenant"))
    for number, client in enumerate(("t/a", "t/b", "t/a")):
        request = queue.request_of(client, number)
        queue.waiting.check_limits(request)
        queue.add(request)
    queue.waiting.check_limits(queue.request_of("t/b", 3))
    with pytest.raises(ClientLimit, match="2 requests waiting; the limit is 2"):
        queue.waiting.check_limits(queue.request_of("t/a", 3))


def test_a_tenants_requests_that_are_never_dropped_leave_places_to_other_tenants() -> None:
    queue = Queue(replace(LIMITS, max_waiting=8), FairnessLevels.parse("tenant,user"))
    protected = [queue.request_of(f"many/{number}", number, exempt=True) for number in range(5)]
    for request in protected[:4]:
        queue.waiting.check_limits(request)
        queue.add(request)
    with pytest.raises(ClientLimit, match=r"'many' has 4 requests waiting that are never dropped.* the limit is 4"):
        queue.waiting.check_limits(protected[4])
    queue.waiting.check_limits(queue.request_of("few/one", 6, exempt=True))
    queue.waiting.check_limits(queue.request_of("many/0", 7))
    queue.waiting.check_invariants()
    queue.remove(protected[0])
    queue.waiting.check_limits(protected[4])
    queue.waiting.check_invariants()


def test_a_preempted_request_is_never_dropped() -> None:
    queue, requests = full()
    for request in requests:
        queue.start(request)
    assert queue.waiting.oldest_since is None
    queue.put_back(requests[0], 7.0)
    later = [queue.request_of(client, 3 + number) for number, client in enumerate("ba")]
    for request in later:
        queue.add(request, 8.0)
    assert (queue.waiting.oldest_since, [*queue.waiting]) == (7.0, [requests[0], *later])
    assert queue.waiting.request_to_drop_for(queue.request_of("c", 5)) is later[0]
    queue.remove(later[0])
    assert (later[0] in queue.waiting, len(queue.waiting)) == (False, 2)
    queue.waiting.check_invariants()
    queue.start(requests[0])
    queue.waiting.check_invariants()


def test_requests_that_are_never_dropped_leave_places_whichever_account_has_them() -> None:
    queue = Queue(replace(LIMITS, max_waiting=8), FairnessLevels.parse("tenant,user"))
    for tenant, places in (("first", 3), ("second", 3)):
        for number in range(places):
            request = queue.request_of(f"{tenant}/{number}", number, exempt=True)
            queue.waiting.check_limits(request)
            queue.add(request)
    with pytest.raises(ClientLimit, match=r"'second' has 3 .* the limit is 2, the places without such requests"):
        queue.waiting.check_limits(queue.request_of("second/3", 3, exempt=True))


def test_the_queue_is_as_old_as_a_preempted_request_in_it() -> None:
    queue = Queue()
    preempted = queue.request_of("a", 0)
    queue.add(preempted)
    queue.start(preempted)
    queue.put_back(preempted, 1.0)
    assert queue.waiting.oldest_since == 1.0
    queue.add(queue.request_of("b", 1), 2.0)
    assert queue.waiting.oldest_since == 1.0
    queue.remove(preempted)
    assert queue.waiting.oldest_since == 2.0

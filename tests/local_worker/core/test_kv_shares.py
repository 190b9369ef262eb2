"""Shares of the KV cache, compared with a model that counts everything again at every call."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_worker.core.kv_shares import KVShares
from local_worker.core.request import Request
from tests.local_worker.engine.driving import make_request

PAGES = 24
CLIENTS = "abcd"


class RoomMachine(RuleBasedStateMachine):
    """Requests that come, enter, grow, are preempted, and leave from wherever they are."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = KVShares(PAGES)
        self.waiting: list[Request] = []
        self.running: dict[Request, int] = {}  # with the pages found cached
        self.latest: dict[str, int] = {}  # client -> weight of its latest request
        self.arrivals = 0

    @rule(client=st.sampled_from(CLIENTS), weight=st.sampled_from((1, 500, 1000, 3000)))
    def arrive(self, client: str, weight: int) -> None:
        request = make_request([0], arrival=self.arrivals)
        request.client, request.weight = client, weight
        self.arrivals += 1
        self.latest[client] = weight
        self.waiting.append(request)
        self.shares.arrived(request)

    @precondition(lambda self: self.waiting)
    @rule(number=st.integers(0, 20), cached=st.integers(0, 4), fresh=st.integers(0, 9))
    def enter(self, number: int, cached: int, fresh: int) -> None:
        request = self.waiting.pop(number % len(self.waiting))
        request.pages, request.shared = [0] * (cached + fresh), cached
        self.running[request] = cached
        self.shares.entered(request)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 20))
    def grow_and_publish(self, number: int) -> None:
        request = list(self.running)[number % len(self.running)]
        request.pages.append(0)
        request.shared = len(request.pages)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 20))
    def preempt(self, number: int) -> None:
        request = list(self.running)[number % len(self.running)]
        del self.running[request]
        self.waiting.append(request)
        self.shares.preempted(request)

    @precondition(lambda self: self.waiting or self.running)
    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        here = [*self.waiting, *self.running]
        request = here[number % len(here)]
        self.shares.left(request)
        self.waiting = [other for other in self.waiting if other is not request]
        self.running.pop(request, None)

    @invariant()
    def shares_are_by_weight_of_those_who_are_here(self) -> None:
        self.shares.check_invariants(self.waiting, self.running)
        here = {request.client for request in (*self.waiting, *self.running)}
        for client in here:
            share = PAGES * self.latest[client] // sum(self.latest[each] for each in here)
            held = sum(len(each.pages) - cached for each, cached in self.running.items() if each.client == client)
            assert self.shares.share((client,)) == share
            assert self.shares.held((client,)) == held
            request = next(each for each in (*self.waiting, *self.running) if each.client == client)
            for pages in (0, 1, PAGES):
                expected = 0 if here == {client} else max(0, held + pages - share)
                assert self.shares.beyond(request, pages) == expected


TestRoom = RoomMachine.TestCase
TestRoom.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Shares of the KV cache, compared with a model that counts everything again at every call."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_worker.core.fairness_levels import FairnessLevels
from local_worker.core.kv_shares import KVShares, Path
from local_worker.core.request import Request
from tests.local_worker.engine.driving import make_request

PAGES = 24
CLIENTS = ("a", "b", "c/u", "c/v")
WEIGHTS = st.sampled_from((1, 500, 1000, 3000))


class RoomMachine(RuleBasedStateMachine):
    """Requests that come, enter, grow, are preempted, and leave from wherever they are."""

    levels = FairnessLevels.parse("user")

    def __init__(self) -> None:
        super().__init__()
        self.shares = KVShares(PAGES, self.levels)
        self.waiting: list[Request] = []
        self.running: dict[Request, int] = {}  # with the pages found cached
        self.latest: dict[Path, int] = {}  # the weight of each account's latest request
        self.arrivals = 0

    @rule(client=st.sampled_from(CLIENTS), interaction=st.sampled_from("ij"), weight=WEIGHTS, user_weight=WEIGHTS)
    def arrive(self, client: str, interaction: str, weight: int, user_weight: int) -> None:
        request = make_request([0], arrival=self.arrivals)
        request.client, request.interaction = client, interaction
        request.weight, request.user_weight = weight, user_weight
        self.arrivals += 1
        highest, *below = self.accounts(request)
        self.latest |= {highest: weight, **dict.fromkeys(below, user_weight)}
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
        (self.shares.finished if request in self.running else self.shares.withdrawn)(request)
        self.waiting = [other for other in self.waiting if other is not request]
        self.running.pop(request, None)

    def accounts(self, request: Request) -> list[Path]:
        path = self.levels.path(request)
        return [path[:end] for end in range(1, len(path) + 1)]

    @invariant()
    def shares_are_by_weight_of_those_who_are_here(self) -> None:
        self.shares.check_invariants(self.waiting, self.running)
        of_request = {request: self.accounts(request) for request in (*self.waiting, *self.running)}
        here = {account for accounts in of_request.values() for account in accounts}
        for request, accounts in of_request.items():
            share, over, is_alone = PAGES, list[int](), True
            for account in accounts:
                siblings = {other for other in here if other[:-1] == account[:-1]}
                share = share * self.latest[account] // sum(self.latest[other] for other in siblings)
                held = sum(len(each.pages) - n for each, n in self.running.items() if account in of_request[each])
                is_alone = is_alone and siblings == {account}
                if not is_alone:
                    over.append(held - share)
                assert self.shares.share(account) == share
                assert self.shares.held(account) == held
            for pages in (0, 1, PAGES):
                assert self.shares.beyond(request, pages) == max([0, *(each + pages for each in over)])


class RoomOfTenantsMachine(RoomMachine):
    """The same with three levels."""

    levels = FairnessLevels.parse("tenant,user,interaction")


TestRoom = RoomMachine.TestCase
TestRoomOfTenants = RoomOfTenantsMachine.TestCase
TestRoom.settings = TestRoomOfTenants.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)

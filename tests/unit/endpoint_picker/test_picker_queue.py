"""Requests that wait, against a model that sorts all tenants and clients each time, and the shares that they get."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from endpoint_picker.core.picker_queue import PickerQueue, background
from endpoint_picker.core.service_counters import ServiceCounters
from global_scheduler.core.policies import RouteRequest
from serving.cost import WEIGHT_ONE

INTERACTIVE = ["a", "a/x", "a/y", "b/x", "b/x/y", "/", "c"]
CLIENTS = [*INTERACTIVE, *map(background, ["a/x", "a/y", "b", "/"])]
CLIENT = st.sampled_from(CLIENTS)
MOST = 3


def request(number: int, client: str, *excluded: str) -> RouteRequest:
    return RouteRequest(str(number), 0, client, "pool", b"", 0, WEIGHT_ONE, excluded)


class NaiveLevel:
    """Counters, the names that wait in the order in which they began to, and the highest counter that was served."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.waiting: list[str] = []
        self.latest = 0

    def begins(self, name: str) -> None:
        floor = min((self.counters[each] for each in self.waiting), default=self.latest)
        self.counters[name] = max(self.counters[name], floor)
        self.waiting.append(name)

    def served(self, name: str) -> None:
        if name not in self.waiting:
            self.counters[name] = max(self.counters[name], self.latest)
        self.latest = max(self.latest, self.counters[name])

    def in_order(self) -> list[str]:
        return sorted(self.waiting, key=self.counters.__getitem__)


class NaiveHeld:
    """A level of tenants for each class, and a level of clients for each tenant."""

    def __init__(self) -> None:
        self.classes = {"interactive": NaiveLevel(), "background": NaiveLevel()}
        self.clients = {client.partition("/")[0]: NaiveLevel() for client in CLIENTS}
        self.queues: dict[str, list[RouteRequest]] = {client: [] for client in CLIENTS}

    def tenants(self, client: str) -> NaiveLevel:
        return self.classes["interactive" if client in INTERACTIVE else "background"]

    def add(self, new: RouteRequest) -> bool:
        tenant = new.client.partition("/")[0]
        if len(self.queues[new.client]) == MOST:
            return False
        if not self.queues[new.client]:
            if not self.clients[tenant].waiting:
                self.tenants(new.client).begins(tenant)
            self.clients[tenant].begins(new.client)
        self.queues[new.client].append(new)
        return True

    def removed(self, client: str) -> None:
        tenant = client.partition("/")[0]
        if not self.queues[client]:
            self.clients[tenant].waiting.remove(client)
            if not self.clients[tenant].waiting:
                self.tenants(client).waiting.remove(tenant)

    def next(self, room: str) -> RouteRequest | None:
        for tenant in [tenant for level in self.classes.values() for tenant in level.in_order()]:
            for client in self.clients[tenant].in_order():
                if room not in self.queues[client][0].excluded:
                    self.served(client)
                    taken = self.queues[client].pop(0)
                    self.removed(client)
                    return taken
        return None

    def served(self, client: str) -> None:
        tenant = client.partition("/")[0]
        self.tenants(client).served(tenant)
        self.clients[tenant].served(client)

    def charge(self, client: str, micro: int) -> None:
        tenant = client.partition("/")[0]
        self.tenants(client).counters[tenant] += micro
        self.clients[tenant].counters[client] += micro


class HeldMachine(RuleBasedStateMachine):
    """Requests of both classes come, go and are taken; clients are charged and refunded, here and by another picker."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = ServiceCounters()
        self.held = PickerQueue(MOST, self.counters)
        self.naive = NaiveHeld()
        self.numbers = 0

    @rule(client=CLIENT, excluded=st.sampled_from(["", "first"]))
    def adds(self, client: str, excluded: str) -> None:
        self.numbers += 1
        new = request(self.numbers, client, excluded)
        assert self.held.add(new) == self.naive.add(new)

    @rule(client=CLIENT, at=st.integers(0, MOST - 1))
    def goes_while_it_waits(self, client: str, at: int) -> None:
        queue = self.naive.queues[client]
        if queue:
            self.held.remove(queue.pop(at % len(queue)))
            self.naive.removed(client)

    @rule(room=st.sampled_from(["first", "second"]))
    def takes(self, room: str) -> None:
        assert self.held.next(lambda each: room not in each.excluded) == self.naive.next(room)

    @rule(client=CLIENT)
    def serves_one_that_did_not_wait(self, client: str) -> None:
        self.held.served(client)
        self.naive.served(client)

    @rule(client=CLIENT, micro=st.integers(-4, 8))
    def charges(self, client: str, micro: int) -> None:
        self.held.charge(client, micro)
        self.naive.charge(client, micro)

    @rule(client=CLIENT, micro=st.integers(-4, 8))
    def another_charges(self, client: str, micro: int) -> None:
        tenant = client.partition("/")[0]
        changes = self.counters.begin(100)
        told = {name: self.counters[name] for name in changes}
        told |= {name: self.counters[name] + micro for name in (client, f"{tenant}\n")}
        self.counters.end(told.items())
        self.naive.charge(client, micro)

    @invariant()
    def levels_agree(self) -> None:
        assert len(self.held) == sum(map(len, self.naive.queues.values()))
        assert bool(self.held) == bool(len(self.held))
        self.held.check_invariants()


HeldMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=50)
TestPickerQueue = HeldMachine.TestCase

MOST_COST = 40


@settings(max_examples=20)
@given(st.lists(st.integers(1, MOST_COST), min_size=60, max_size=90), st.integers(1, 20))
def test_tenants_share_alike_however_many_users_they_name_and_so_do_users_of_a_tenant(
    costs: list[int], users: int
) -> None:
    """Siblings that wait all along differ by at most twice what a request costs: it is charged when it is taken."""
    held = PickerQueue(len(costs), ServiceCounters())
    names = [*(f"many/{number}" for number in range(users)), "one"]
    numbers = iter(range(10_000))
    for name in names:
        for _ in costs:
            held.add(request(next(numbers), name))
    service: Counter[str] = Counter()
    for cost in costs:
        taken = held.next(lambda _: True)
        assert taken is not None
        held.charge(taken.client, cost)
        service[taken.client] += cost
        of_many = [service[name] for name in names if name != "one"]
        assert abs(sum(of_many) - service["one"]) <= 2 * MOST_COST
        assert max(of_many) - min(of_many) <= 2 * MOST_COST


def test_background_requests_go_when_no_other_one_fits_and_are_fair_among_themselves() -> None:
    held = PickerQueue(1000, ServiceCounters())
    for number in range(40):
        held.add(request(number, background(("many/a", "many/b", "one")[number % 3])))
    taken: Counter[str] = Counter()
    for number in range(100, 112):
        held.add(request(number, "one", "full"))
        first = held.next(lambda _: True)
        assert first is not None
        assert first.client == "one"
        held.add(request(number, "one", "full"))
        second = held.next(lambda each: "full" not in each.excluded)
        assert second is not None
        held.charge(second.client, 10)
        taken[second.client] += 1
        assert held.next(lambda each: "full" in each.excluded) is not None
    assert taken == {background("many/a"): 3, background("many/b"): 3, background("one"): 6}


def test_who_comes_and_goes_gets_no_more_than_who_waits() -> None:
    """A tenant's users that each make one call and are never seen again have its share together."""
    held = PickerQueue(1000, ServiceCounters())
    for number in range(1000):
        held.add(request(number, "one"))
    taken: Counter[str] = Counter()
    for number in range(1000, 1400):
        held.add(request(number, f"many/{number}"))
        found = held.next(lambda _: True)
        assert found is not None
        held.charge(found.client, 10)
        taken[found.client.partition("/")[0]] += 1
    assert taken == {"many": 200, "one": 200}


def test_a_client_that_was_never_served_starts_where_its_tenant_s_clients_are() -> None:
    held = PickerQueue(1, ServiceCounters())
    held.charge("t/served", 10)
    held.served("t/served")
    held.add(request(1, "t/new"))
    held.add(request(2, "t/served"))
    held.charge("t/new", 1)
    taken = held.next(lambda _: True)
    assert taken is not None
    assert taken.client == "t/served"


def test_a_client_that_comes_starts_at_the_least_counter_also_if_that_has_fallen() -> None:
    held = PickerQueue(1, ServiceCounters())
    for number, client in enumerate(("t/one", "t/other")):
        held.add(request(number, client))
        held.charge(client, 10)
    assert held.next(lambda _: False) is None
    held.charge("t/one", -6)
    held.add(request(2, "t/new"))
    held.charge("t/new", 1)
    taken = held.next(lambda each: each.client != "t/one")
    assert taken is not None
    assert taken.client == "t/new"

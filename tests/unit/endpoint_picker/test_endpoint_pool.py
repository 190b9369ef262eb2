"""The pool of a picker against a naive count of who has which request."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from endpoint_picker.core.endpoint_blocks import RecentBlocks, ReportedBlocks
from endpoint_picker.core.endpoint_pool import (
    POOL,
    REST_SECONDS,
    EndpointPool,
    EndpointReport,
    EndpointSize,
    Pick,
)
from endpoint_picker.core.picker_queue import PickerQueue
from endpoint_picker.core.service_counters import ServiceCounters
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.policies import DEFAULT_POLICY, POLICIES, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.doubleq import DoubleQ
from serving.blocks import Link, chain, pack_digests, unpack_digests
from serving.cost import MICRO, WEIGHT_ONE, WeightedTokens

ADDRESSES = [f"10.0.0.{n}:80" for n in range(4)]
SIZE = EndpointSize(running=4, kv_tokens=40, block_tokens=2)
SMALL = EndpointSize(running=2, kv_tokens=40, block_tokens=2)


def request(
    number: int, prompt: bytes = b"", excluded: frozenset[str] = frozenset(), client: str = "ann"
) -> RouteRequest:
    digests = chain(prompt, SIZE.block_tokens, 7)
    return RouteRequest(str(number), 0, client, POOL, digests, len(prompt) // 4, WEIGHT_ONE, excluded)


def held_requests(most: int) -> PickerQueue:
    return PickerQueue(most, ServiceCounters())


def pool(policy: str = DEFAULT_POLICY, most_held: int = 3, size: EndpointSize = SIZE) -> EndpointPool:
    cost = WeightedTokens()
    chosen = POLICIES[policy](RoutePolicyConfig(100, cost))
    return EndpointPool(chosen, cost, BlockIndex(60), size, held_requests(most_held))


class PoolMachine(RuleBasedStateMachine):
    """Requests come and end in every way, endpoints come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool(size=SMALL)
        self.now = 0.0
        self.numbers = 0
        self.open: list[Pick] = []
        self.held: dict[str, RouteRequest] = {}
        self.has_passed = False  # a limit, of which neither a proxy nor another process knows
        self.endpoints: set[str] = set()
        self.others: Counter[str] = Counter()  # requests of other callers, by endpoint
        self.without_memory: set[str] = set()
        self.entered: list[Pick] = []  # a proxy does not answer these
        self.begun: list[Pick] = []  # their answers
        self.beside: Counter[str] = Counter()  # requests that wait beside the engine, by endpoint

    @rule(endpoints=st.sets(st.sampled_from(ADDRESSES)))
    def changes(self, endpoints: set[str]) -> None:
        gone = self.endpoints - endpoints
        self.open = [each for each in self.open if each.endpoint not in gone]
        for address in gone:
            del self.others[address], self.beside[address]
        self.without_memory -= gone
        self.endpoints = endpoints
        self.pool.set_endpoints(sorted(endpoints), self.now)

    @rule(prompt=st.binary(max_size=64), excluded=st.frozensets(st.sampled_from(ADDRESSES), max_size=2))
    def places(self, prompt: bytes, excluded: frozenset[str]) -> None:
        self.numbers += 1
        wanted = request(self.numbers, prompt, excluded=excluded)
        assert self.pool.has_endpoint(wanted) == bool(self.endpoints - excluded)
        pick = self.pool.place(wanted, self.now)
        if pick is None:
            if self.pool.has_endpoint(wanted) and self.pool.hold(wanted):
                self.held[wanted.request_id] = wanted
            return
        assert not self.held
        self.had_room(pick)
        named = [pick.endpoint, *pick.fallbacks]
        assert len(set(named)) == len(named)
        assert set(named) <= self.endpoints - excluded
        self.open.append(pick)

    @rule(
        address=st.sampled_from(ADDRESSES),
        running=st.integers(0, 6),
        waiting=st.integers(0, 2),
        usage=st.sampled_from([0.0, 0.85, 1.0]),
        ended=st.integers(0, 2),
    )
    def reports(self, address: str, running: int, waiting: int, usage: float, ended: int) -> None:
        own = self.computing(address) if address in self.endpoints else 0
        self.pool.observed(address, EndpointReport(running, waiting, usage), own + ended, self.now)
        if address in self.endpoints:
            self.others[address] = max(0, running + waiting - own - ended)
            (self.without_memory.add if waiting and usage == 1.0 else self.without_memory.discard)(address)

    @rule(address=st.sampled_from(ADDRESSES), prompt=st.binary(max_size=64))
    def enters(self, address: str, prompt: bytes) -> None:
        self.numbers += 1
        pick = self.pool.placed_elsewhere(address, request(self.numbers, prompt), 0, self.now)
        assert (pick is not None) == (address in self.endpoints)
        if pick is not None:
            assert pick.endpoint == address
            self.open.append(pick)
            self.entered.append(pick)
            self.has_passed = True

    @rule(address=st.sampled_from(ADDRESSES), requests=st.integers(0, 3))
    def some_wait_beside(self, address: str, requests: int) -> None:
        self.pool.waits_outside_engine(address, requests)
        self.beside[address] = requests if address in self.endpoints else 0

    def computing(self, address: str) -> int:
        """The requests of the pool that take room in the engine."""
        return max(0, self.pool.outstanding(address) - self.beside[address])

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99), served=st.sampled_from(["", *ADDRESSES]))
    def begins(self, at: int, served: str) -> None:
        pick = self.open[at % len(self.open)]
        if pick not in self.entered and pick not in self.begun:
            self.begun.append(pick)
            expected = served if served in self.endpoints else pick.endpoint
            self.has_passed |= expected != pick.endpoint
            self.pool.answered_by(pick, served, self.now)
            assert pick.endpoint == expected

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99), tokens=st.integers(0, 9))
    def is_answered(self, at: int, tokens: int) -> None:
        self.pool.completed(self.open.pop(at % len(self.open)), tokens)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99))
    def is_refused(self, at: int) -> None:
        self.pool.rolled_back(self.open.pop(at % len(self.open)))

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 99))
    def goes_while_it_waits(self, at: int) -> None:
        self.pool.drop(self.held.pop(list(self.held)[at % len(self.held)]))

    @rule()
    def releases(self) -> None:
        while (pick := self.pool.release(self.now)) is not None:
            excluded = self.held.pop(pick.request.request_id).excluded
            assert pick.endpoint in self.endpoints - set(excluded)
            self.had_room(pick)
            self.open.append(pick)
        for each in self.held.values():
            for address in self.endpoints - set(each.excluded) - self.without_memory:
                assert self.computing(address) + self.others[address] >= SMALL.running or self.has_passed

    def had_room(self, pick: Pick) -> None:
        assert self.computing(pick.endpoint) + self.others[pick.endpoint] <= SMALL.running
        assert pick.endpoint not in self.without_memory

    @rule(seconds=st.floats(0, 2 * REST_SECONDS))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def counts_agree(self) -> None:
        expected = Counter(each.endpoint for each in self.open)
        assert max(map(self.computing, self.endpoints), default=0) <= SMALL.running or self.has_passed
        assert {each: self.pool.outstanding(each) for each in self.pool.endpoints} == {
            each: expected[each] for each in self.endpoints
        }
        self.pool.check_invariants()


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestPool = PoolMachine.TestCase


def test_an_endpoint_that_a_proxy_passed_over_rests() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    pick = tried.place(request(1), 0.0)
    assert pick is not None
    tried.answered_by(pick, ADDRESSES[1], 0.0)
    tried.completed(pick, 1)
    chosen = [tried.place(request(number), at) for number, at in ((2, 0.0), (3, 9.9), (4, 10.0))]
    assert [each.endpoint for each in chosen if each] == [ADDRESSES[1], ADDRESSES[1], ADDRESSES[0]]


def test_a_request_rather_goes_to_an_endpoint_that_rests_than_nowhere() -> None:
    tried = pool()
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    for number, served in enumerate((ADDRESSES[1], ADDRESSES[0])):
        pick = tried.place(request(number), 0.0)
        assert pick is not None
        tried.answered_by(pick, served, 0.0)
        tried.completed(pick, 1)
    assert tried.place(request(2), 0.0) is not None


def test_a_refund_leaves_16_tokens_charged_and_an_end_charges_prompt_and_output() -> None:
    policy = DoubleQ(RoutePolicyConfig(1000, WeightedTokens()))
    tried = EndpointPool(policy, WeightedTokens(), BlockIndex(60), SIZE, held_requests(1))
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for number, (is_refused, charged) in enumerate(((True, 16), (False, 16 + 100 + 2 * 30))):
        pick = tried.place(request(number, b"x" * 400), 0.0)
        assert pick is not None
        assert policy.balance("ann", POOL, 0) == (1000 - 100 - 16 * number) * MICRO
        if is_refused:
            tried.rolled_back(pick)
        else:
            tried.answered_by(pick, "", 0.0)
            tried.completed(pick, 30)
        assert policy.balance("ann", POOL, 0) == (1000 - charged) * MICRO


def placed(tried: EndpointPool, number: int, prompt: bytes = b"", client: str = "ann", now: float = 0.0) -> Pick:
    """The pick of a request that has room."""
    pick = tried.place(request(number, prompt, client=client), now)
    assert pick is not None
    return pick


def test_an_answer_of_few_tokens_is_charged_as_it_is_and_its_prompt_counts_as_computed() -> None:
    policy = DoubleQ(RoutePolicyConfig(1000, WeightedTokens()))
    tried = EndpointPool(policy, WeightedTokens(), BlockIndex(60), SIZE, held_requests(1))
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    tried.completed(placed(tried, 0, b"x" * 40), 1)
    assert policy.balance("ann", POOL, 0) == (1000 - 10 - 2) * MICRO
    tried.completed(placed(tried, 1, b"y" * 40), 0)
    assert placed(tried, 2, b"y" * 40).matched_tokens == 10, "an answer without tokens has a computed prompt, too"


def test_the_endpoints_to_try_next_are_two_with_the_fewest_requests() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES, 0.0)
    for address, running in zip(ADDRESSES, (0, 3, 1, 2), strict=True):
        tried.observed(address, EndpointReport(running), 0, 0.0)
    pick = placed(tried, 0)
    assert [pick.endpoint, *pick.fallbacks] == [ADDRESSES[0], ADDRESSES[2], ADDRESSES[3]]
    assert tried.others(ADDRESSES[:2]) == {*ADDRESSES[2:]}


@dataclass(frozen=True)
class Offset:
    """A cost that counts system tokens and earlier output tokens once more."""

    def extend(self, tokens: int, system_tokens: int) -> int:
        return (tokens + system_tokens) * MICRO

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        return (tokens + output_tokens) * MICRO


@pytest.mark.parametrize("clients", [("ann", "bob"), ("bob", "ann")])
def test_equal_service_in_different_portions_is_equal(clients: tuple[str, str]) -> None:
    policy = POLICIES["least-loaded"](RoutePolicyConfig(100, Offset()))
    tried = EndpointPool(policy, Offset(), BlockIndex(60), SIZE, held_requests(3))
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    before = [placed(tried, number, client="carol") for number in range(SIZE.running)]
    for number, client in enumerate(clients, 10):
        assert tried.hold(request(number, client=client))
    portions = [("ann", 8, 10), ("bob", 4, 5), ("bob", 4, 5)]
    for number, (client, prompt, output) in enumerate(portions, 20):
        pick = tried.placed_elsewhere(ADDRESSES[0], request(number, b"x" * 4 * prompt, client=client), 0, 0.0)
        assert pick is not None
        tried.completed(pick, output)
    for pick in before:
        tried.completed(pick, 1)
    released = tried.release(0.0)
    assert released is not None
    assert released.request.client == clients[0], "of equals the one that waits longer"


def test_prompts_are_charged_when_they_are_placed_and_refunded_when_they_are_refused() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    first = placed(tried, 0, b"x" * 80, "ann")
    before = [placed(tried, number, client="carol") for number in range(1, SIZE.running)]
    for number, (client, prompt) in enumerate([("ann", 10), ("ann", 10), ("bob", 4), ("bob", 4), ("bob", 4)], 10):
        assert tried.hold(request(number, b"x" * 4 * prompt, client=client))
    for pick in before:
        tried.rolled_back(pick)
    order = [tried.release(0.0) for _ in before]
    assert [pick.request.client for pick in order if pick] == ["ann", "bob", "bob"]
    tried.rolled_back(first)
    last = tried.release(0.0)
    assert last is not None
    assert last.request.client == "ann", "the refund of 20 tokens outweighs the 10 that it was given"
    tried.check_invariants()


@pytest.mark.parametrize(("prompt", "output"), [(1, 0), (0, 1)])
def test_who_is_served_by_another_way_has_less_of_the_pool(prompt: int, output: int) -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    before = [placed(tried, number, client="carol") for number in range(SIZE.running)]
    for number, client in enumerate(("ann", "bob"), 10):
        tried.hold(request(number, client=client))
    pick = tried.placed_elsewhere(ADDRESSES[0], request(20, b"x" * 4 * prompt), 0, 0.0)
    assert pick is not None
    tried.completed(pick, output)
    tried.completed(before[0], 1)
    released = tried.release(0.0)
    assert released is not None
    assert released.request.client == "bob", "ann waits longer and was given a token"


def test_a_full_endpoint_gets_nothing_even_if_it_caches_the_prompt() -> None:
    tried = pool("doubleq", size=SMALL)
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    tried.completed(placed(tried, 0, b"a" * 48), 1)
    picks = [placed(tried, number, b"a" * 48) for number in (1, 2, 3)]
    assert [pick.matched_tokens for pick in picks] == [12, 12, 0]
    assert picks[0].endpoint == picks[1].endpoint != picks[2].endpoint


def test_an_engine_without_memory_gets_nothing_even_if_it_has_the_fewest_requests() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    tried.observed(ADDRESSES[0], EndpointReport(0, 1, 0.95), 1, 0.0)
    assert [placed(tried, number).endpoint for number in range(SIZE.running)] == [ADDRESSES[1]] * SIZE.running
    assert tried.place(request(9), 0.0) is None


def test_a_request_that_moves_takes_room_where_it_goes_and_leaves_it_where_it_was() -> None:
    for requests in (3, 4):
        tried = pool("least-loaded", size=SMALL)
        tried.set_endpoints(ADDRESSES[:2], 0.0)
        first, *_ = [placed(tried, number) for number in range(requests)]
        tried.answered_by(first, next(address for address in ADDRESSES[:2] if address != first.endpoint), 0.0)
        tried.check_invariants()


def test_requests_waiting_for_an_endpoint_take_no_others_room_and_leave_with_it() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    tried.waits_outside_engine(ADDRESSES[0], 2)
    tried.observed(ADDRESSES[0], EndpointReport(SIZE.running), 0, 0.0)
    assert tried.place(request(0), 0.0) is None
    for addresses in ([], ADDRESSES[:1]):
        tried.set_endpoints(addresses, 1.0)
    assert sum(tried.place(request(number), 1.0) is not None for number in range(9)) == SIZE.running


def test_a_request_that_moved_leaves_its_blocks_where_it_was_served() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    pick = placed(tried, 0, b"a" * 48)
    tried.answered_by(pick, ADDRESSES[1], 0.0)
    assert [tried.outstanding(address) for address in ADDRESSES[:2]] == [0, 1]
    tried.completed(pick, 1)
    assert placed(tried, 1, b"a" * 48).matched_tokens == 12


def test_an_endpoint_that_rested_and_left_takes_requests_when_it_returns() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    pick = placed(tried, 0)
    tried.answered_by(pick, ADDRESSES[1], 0.0)
    tried.set_endpoints(ADDRESSES[1:2], 1.0)
    assert placed(tried, 1, now=REST_SECONDS).endpoint == ADDRESSES[1]


def test_a_request_that_goes_while_it_waits_holds_up_nobody() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    before = [placed(tried, number) for number in range(SIZE.running)]
    waits = request(10)
    tried.hold(waits)
    tried.completed(before[0], 1)
    assert tried.place(request(11), 0.0) is None, "another waits"
    tried.drop(waits)
    placed(tried, 12)


def test_foreign_requests_at_an_engine_are_never_negative_and_count_as_waiting() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for report, own, room in ((EndpointReport(), 3, 4), (EndpointReport(1, 2), 0, 1), (EndpointReport(), 0, 4)):
        tried.observed(ADDRESSES[0], report, own, 0.0)
        picks = [pick for number in range(6) if (pick := tried.place(request(number), 0.0))]
        assert len(picks) == room
        for pick in picks:
            tried.rolled_back(pick)


def test_a_clients_requests_by_another_way_count_at_an_engine() -> None:
    policy = DoubleQ(RoutePolicyConfig(1000, WeightedTokens()))
    tried = EndpointPool(policy, WeightedTokens(), BlockIndex(60), SIZE, held_requests(1))
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    by_another = tried.placed_elsewhere(ADDRESSES[0], request(1, b"x" * 400), 0, 0.0)
    assert by_another is not None
    tried.completed(by_another, 30)
    assert policy.balance("ann", POOL, 0) == (1000 - 100 - 2 * 30) * MICRO
    assert tried.placed_elsewhere("10.9.9.9:80", request(2), 0, 0.0) is None


def test_requests_that_wait_beside_an_engine_take_no_room_in_it() -> None:
    tried = pool()
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for number in range(SIZE.running):
        tried.placed_elsewhere(ADDRESSES[0], request(number), 0, 0.0)
    assert tried.place(request(10), 0.0) is None
    tried.waits_outside_engine(ADDRESSES[0], 1)
    assert tried.place(request(11), 0.0) is not None
    assert tried.place(request(12), 0.0) is None


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.integers(0, 40)), min_size=20, max_size=60))
def test_two_clients_that_wait_get_equal_service(costs: list[tuple[bool, int, int]]) -> None:
    """VTC Theorem 4.4: within twice the most that the requests at work cost, for any lengths of prompts and outputs."""
    tried = pool(most_held=1000)
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    lengths = {str(number): each for number, each in enumerate(costs)}
    for number, (is_ann, prompt, _) in enumerate(costs):
        tried.hold(request(number, b"x" * 4 * prompt, client="ann" if is_ann else "bob"))
    waiting = {client: sum(each[0] == (client == "ann") for each in costs) for client in ("ann", "bob")}
    service = dict.fromkeys(waiting, 0)
    open_picks: list[Pick] = []
    while all(waiting.values()):
        while all(waiting.values()) and (pick := tried.release(0.0)) is not None:
            open_picks.append(pick)
            waiting[pick.request.client] -= 1
        for pick in open_picks:
            _, prompt, output = lengths[pick.request.request_id]
            service[pick.request.client] += prompt + 2 * output
            tried.answered_by(pick, "", 0.0)
            tried.completed(pick, output)
        open_picks.clear()
        assert abs(service["ann"] - service["bob"]) <= 2 * SIZE.running * (40 + 2 * 40)


def test_a_client_that_did_not_wait_has_no_credit() -> None:
    held = held_requests(10)
    held.charge("busy", 1_000_000)
    for number in range(4):
        held.add(request(number, client="busy"))
    assert held.next(lambda _: True) is not None
    for number in range(4, 8):
        held.add(request(number, client="late"))
    order = []
    while (taken := held.next(lambda _: True)) is not None:
        order.append(taken.client)
        held.charge(taken.client, 10)
    assert order[:6] == ["busy", "late"] * 3
    held.check_invariants()


def test_a_client_that_comes_when_nobody_waits_begins_where_the_last_one_was_served() -> None:
    held = held_requests(10)
    held.charge("busy", 100)
    held.add(request(0, client="busy"))
    assert held.next(lambda _: True) is not None
    held.add(request(1, client="late"))
    held.add(request(2, client="busy"))
    held.charge("late", 1)
    taken = held.next(lambda _: True)
    assert taken is not None
    assert taken.client == "busy"
    held.check_invariants()


def test_service_while_nobody_waited_is_no_debt() -> None:
    """A night's calls to an idle pool do not keep their client waiting in the morning; the last one's cost does."""
    tried = pool("least-loaded", most_held=10)
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for number in range(100):
        tried.completed(placed(tried, number, b"x" * 4, "busy"), 0)
    before = [placed(tried, number, b"x" * 4, "late") for number in range(100, 100 + SIZE.running)]
    for number, client in enumerate(["late", "busy", "late"], 200):
        assert tried.hold(request(number, b"x" * 4, client=client))
    order = []
    for pick in before[:3]:
        tried.completed(pick, 0)
        released = tried.release(0.0)
        assert released is not None
        order.append(released.request.client)
    assert order == ["late", "busy", "late"]
    tried.check_invariants()


@pytest.mark.parametrize(
    ("charges", "first"),
    [
        ([("ann", 1)], "bob"),  # both begin at 0
        ([("bob", 1)], "ann"),
        ([], "ann"),
        ([("bob", -1), ("ann", 0)], "bob"),
    ],
)
def test_clients_that_were_given_nothing_begin_at_nothing(charges: list[tuple[str, int]], first: str) -> None:
    held = held_requests(10)
    held.charge("bob", 1)
    held.charge("bob", -1)
    held.charge("ann", -1)
    for number, client in enumerate(("ann", "bob")):
        held.add(request(number, client=client))
    for client, micro in charges:
        held.charge(client, micro)
    taken = held.next(lambda _: True)
    assert taken is not None
    assert taken.client == first


def test_a_first_client_with_service_is_not_lifted_by_one_that_has_less() -> None:
    held = held_requests(10)
    held.charge("ann", 1)
    for number, client in enumerate(("bob", "ann")):
        held.add(request(number, client=client))
    held.charge("bob", 1)
    taken = held.next(lambda _: True)
    assert taken is not None
    assert taken.client == "bob", "of equals the one that waits longer"


def test_removing_a_request_that_does_not_wait_changes_nothing() -> None:
    held = held_requests(10)
    held.remove(request(0))
    held.add(request(1))
    held.remove(request(2))
    assert len(held) == 1
    held.remove(request(1))
    assert not held
    assert held.next(lambda _: True) is None
    held.check_invariants()


def test_blocks_that_were_evicted_are_not_reported_any_more_and_forgotten_ones_are_not_held() -> None:
    reported, recent = ReportedBlocks(), RecentBlocks(4)
    reported.changed([(1, 0), (2, 1)], [])
    reported.changed([], [2])
    assert unpack_digests(reported.used(pack_digests([1, 2]))) == (2,)
    recent.used(pack_digests([1, 2]))
    assert unpack_digests(recent.forgotten()) == (2, 1)
    assert len(recent) == 0


def test_a_client_may_have_so_many_waiting_and_no_more() -> None:
    held = held_requests(2)
    assert [held.add(request(number, client="ann")) for number in range(3)] == [True, True, False]
    assert held.add(request(3, client="bob"))
    held.remove(request(0, client="ann"))
    assert held.add(request(4, client="ann"))
    assert len(held) == 3


def test_prefixes_sent_to_an_endpoint_long_ago_are_forgotten() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    matched = []
    for number, letter in enumerate(b"abca"):  # each of 12 blocks, of which 20 fit
        pick = tried.place(request(number, bytes([letter]) * 96), 0.0)
        assert pick is not None
        matched.append(pick.matched_tokens)
        tried.answered_by(pick, "", 0.0)
        tried.completed(pick, 1)
    assert matched == [0, 0, 0, 0]
    again = tried.place(request(9, b"a" * 96), 0.0)
    assert again is not None
    assert again.matched_tokens == 24


def test_the_least_recently_used_end_of_a_chain_is_dropped_first() -> None:
    recent = RecentBlocks(4)
    assert recent.used(pack_digests([1, 2, 3])) == b""
    assert unpack_digests(recent.used(pack_digests([1, 4, 5]))) == (3,)
    assert unpack_digests(recent.used(pack_digests([6, 7]))) == (2, 5)
    assert len(recent) == 4


def test_a_queue_of_other_callers_counts() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    tried.observed(ADDRESSES[0], EndpointReport(running=2), 0, 0.0)
    chosen = [pick.endpoint for number in range(6) if (pick := tried.place(request(number), 0.0))]
    assert Counter(chosen) == {ADDRESSES[1]: 4, ADDRESSES[0]: 2}
    assert tried.place(request(6), 0.0) is None
    tried.observed(ADDRESSES[0], EndpointReport(), 2, 1.0)
    assert tried.place(request(7), 1.0) is not None


def test_an_engine_that_waits_for_memory_gets_no_more_and_one_that_has_some_does() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for usage, waiting, is_placed in ((0.9, 1, False), (0.95, 0, True), (0.8, 1, True)):
        tried.observed(ADDRESSES[0], EndpointReport(0, waiting, usage), waiting, 0.0)
        assert (tried.place(request(round(100 * usage) + waiting), 0.0) is not None) == is_placed


def test_a_rest_outlasts_a_report() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    pick = tried.place(request(1), 0.0)
    assert pick is not None
    tried.answered_by(pick, ADDRESSES[1], 0.0)
    tried.completed(pick, 1)
    tried.observed(ADDRESSES[0], EndpointReport(), 0, 1.0)
    again = tried.place(request(2), 1.0)
    assert again is not None
    assert again.endpoint == ADDRESSES[1]


def test_the_report_of_a_stranger_changes_nothing() -> None:
    tried = pool()
    tried.observed(ADDRESSES[0], EndpointReport(running=9), 0, 0.0)
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    assert tried.place(request(1), 0.0) is not None


def links(tokens: bytes) -> list[Link]:
    """The blocks of a prompt as an endpoint reports them."""
    digests = unpack_digests(chain(tokens, SIZE.block_tokens, 7))
    return list(zip(digests, (0, *digests), strict=False))


def matched(tried: EndpointPool, number: int, prompt: bytes) -> int:
    """The tokens that the endpoint of a request is thought to cache; it is answered."""
    pick = tried.place(request(number, prompt), 0.0)
    assert pick is not None
    tried.answered_by(pick, "", 0.0)
    tried.completed(pick, 1)
    tried.check_invariants()
    return pick.matched_tokens


def test_an_endpoints_report_replaces_the_assumed_prefixes() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    assert [matched(tried, number, b"a" * 48) for number in range(2)] == [0, 12]
    tried.cache_changed(ADDRESSES[0], links(b"b" * 48), [])
    assert tried.reports_blocks(ADDRESSES[0])
    assert [matched(tried, number, b"a" * 48) for number in (2, 3)] == [0, 0]
    assert matched(tried, 4, b"b" * 48 + b"c" * 48) == 12
    assert matched(tried, 5, b"b" * 48 + b"c" * 48) == 12
    tried.cache_changed(ADDRESSES[0], [], [digest for digest, _ in reversed(links(b"b" * 48)[3:])])
    assert matched(tried, 6, b"b" * 48) == 6


def test_a_moved_request_is_not_assumed_where_blocks_are_reported() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    tried.cache_changed(ADDRESSES[1], [], [])
    pick = tried.place(request(1, b"a" * 48), 0.0)
    assert pick is not None
    tried.answered_by(pick, ADDRESSES[1], 0.0)
    tried.completed(pick, 1)
    assert matched(tried, 2, b"a" * 48) == 0


def test_blocks_of_a_stranger_change_nothing_and_an_endpoint_that_comes_back_has_none() -> None:
    tried = pool("least-loaded")
    tried.cache_changed(ADDRESSES[0], links(b"a" * 48), [])
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    assert not tried.reports_blocks(ADDRESSES[0])
    tried.cache_changed(ADDRESSES[0], links(b"a" * 48), [])
    tried.set_endpoints([], 0.0)
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    assert not tried.reports_blocks(ADDRESSES[0])
    assert matched(tried, 1, b"a" * 48) == 0


LONG = EndpointSize(running=20, kv_tokens=4000, block_tokens=2, token_budget=64)
LONG_PROMPT, SHORT_PROMPT = 17 * 4, 16 * 4  # bytes: more than a quarter of a step, and no more


def links_of(pick: Pick) -> list[Link]:
    """The blocks that are stored when the prompt of `pick` is computed."""
    digests = unpack_digests(pick.request.digests)
    return list(zip(digests, (0, *digests), strict=False))


def long_pool(endpoints: int = 1) -> EndpointPool:
    """A pool whose endpoints report blocks."""
    tried = pool("least-loaded", size=LONG)
    tried.set_endpoints(ADDRESSES[:endpoints], 0.0)
    for address in ADDRESSES[:endpoints]:
        tried.cache_changed(address, [(1, 0)], [])
    return tried


def long_request(number: int, client: str = "ann", size: int = LONG_PROMPT) -> RouteRequest:
    return request(number, bytes([number]) * size, client=client)


def test_a_client_has_one_long_miss_at_an_endpoint_and_all_have_three_until_they_are_computed() -> None:
    tried = long_pool()
    first, *others = [tried.place(long_request(number, f"user-{number}"), 0.0) for number in range(3)]
    assert first is not None
    assert all(others)
    assert tried.place(long_request(3, "user-3"), 0.0) is None
    assert tried.place(long_request(4, "user-4", SHORT_PROMPT), 0.0) is not None, "it is not long"
    *before, last = links_of(first)
    tried.cache_changed(ADDRESSES[0], before, [])
    assert tried.place(long_request(5, "user-5"), 0.0) is None, "a block is missing"
    tried.cache_changed(ADDRESSES[0], [last], [])
    assert tried.place(long_request(6, "user-1"), 0.0) is None, "it has one"
    assert tried.place(long_request(7, "user-7"), 0.0) is not None
    tried.check_invariants()


def test_a_long_prompt_goes_to_another_endpoint_or_waits_and_short_ones_pass_it() -> None:
    tried = long_pool(2)
    picks = [tried.place(long_request(number), 0.0) for number in range(2)]
    assert {pick.endpoint for pick in picks if pick} == {*ADDRESSES[:2]}
    third = long_request(2)
    assert tried.place(third, 0.0) is None
    assert tried.hold(third)
    assert tried.hold(long_request(3, "bob", SHORT_PROMPT))
    passed = tried.release(0.0)
    assert passed is not None
    assert passed.request.client == "bob"
    assert tried.release(0.0) is None
    assert picks[1] is not None
    tried.cache_changed(picks[1].endpoint, links_of(picks[1]), [])
    released = tried.release(0.0)
    assert released is not None
    assert released.endpoint == picks[1].endpoint


@pytest.mark.parametrize("way", ["completed", "refused", "moved", "gone"])
def test_a_long_miss_that_leaves_its_endpoint_makes_way_for_the_next_one(way: str) -> None:
    tried = long_pool(2)
    picks = [tried.place(long_request(number), 0.0) for number in range(2)]
    first = next(pick for pick in picks if pick and pick.endpoint == ADDRESSES[0])
    assert tried.place(long_request(2), 0.0) is None
    match way:
        case "completed":
            tried.completed(first, 1)
        case "refused":
            tried.rolled_back(first)
        case "moved":
            tried.answered_by(first, ADDRESSES[1], 0.0)
        case _:
            tried.set_endpoints(ADDRESSES[1:2], 0.0)
            tried.set_endpoints(ADDRESSES[:2], 0.0)
            tried.cache_changed(ADDRESSES[0], [(1, 0)], [])
    placed_next = tried.place(long_request(3), REST_SECONDS)
    assert placed_next is not None
    assert placed_next.endpoint == ADDRESSES[0]
    if way in ("moved", "gone"):
        tried.completed(first, 1)
    assert tried.place(long_request(4), REST_SECONDS) is None
    tried.check_invariants()


def test_a_long_prompt_with_a_cached_prefix_is_no_long_miss_where_that_is() -> None:
    tried = long_pool()
    first = tried.place(long_request(0), 0.0)
    assert first is not None
    again = long_request(0)
    again.request_id = "again"
    assert tried.place(again, 0.0) is None
    tried.cache_changed(ADDRESSES[0], links_of(first)[:1], [])
    assert tried.place(again, 0.0) is not None, "of 17 tokens it finds 2"


def test_long_prompts_are_not_counted_where_an_endpoint_does_not_tell_what_it_caches() -> None:
    for told in (EndpointSize(running=20, kv_tokens=4000, block_tokens=2), LONG):
        tried = pool("least-loaded", size=told)
        tried.set_endpoints(ADDRESSES[:1], 0.0)
        if told is not LONG:
            tried.cache_changed(ADDRESSES[0], [(1, 0)], [])
        assert all(tried.place(long_request(number), 0.0) for number in range(8))

"""Least delay within a dispatcher against its formula written out over lists of requests."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from global_scheduler.core.backlog_table import BacklogTable
from global_scheduler.core.policies import RoutePolicy, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.least_delay import FIRST_OUTPUT, SCALE, LeastDelay
from serving.blocks import pack_digests, runs
from serving.cost import MICRO, Cost, Normalized, Profiled, WeightedTokens
from serving.names import tenant_of
from tests.unit.global_scheduler.dispatch_machine import Chain, DispatchMachine, NaiveWorker, Running
from tests.unit.global_scheduler.driving import CONFIG, dispatcher, identity, placed, request


@dataclass
class Outstanding:
    """A booked request: its client, its work in micro-units, where it is, how much of its prompt was not cached, and
    whether that is computed."""

    client: str
    work: int
    at: str
    uncached: int
    is_computed: bool = False


class LeastDelayMachine(DispatchMachine):
    """Outstanding requests, the weight with which a client or tenant came last to a worker, and average outputs in
    1 / SCALE tokens."""

    def __init__(self) -> None:
        self.outstanding: dict[str, Outstanding] = {}
        self.weights: dict[tuple[str, str], int] = {}  # by worker, and client or tenant
        self.outputs: dict[str, int] = {}
        self.output = FIRST_OUTPUT
        super().__init__()

    def make_policy(self) -> RoutePolicy:
        self.policy = LeastDelay(CONFIG)
        return self.policy

    def select(self, asked: RouteRequest, chain: Chain, candidates: dict[str, NaiveWorker]) -> str:
        def key(name: str) -> tuple[int, int, Fraction, int]:
            uncached = max(0, asked.prompt_tokens - 16 * candidates[name].matches(chain))
            work = sum(each.work for each in self.outstanding.values() if each.at == name)
            return (self.delay(asked, name, uncached), work, *self.order(name))

        return min(candidates, key=key)

    def delay(self, asked: RouteRequest, name: str, uncached: int) -> int:
        there = [each for each in self.outstanding.values() if each.at == name]
        tenants = [each for each in there if tenant_of(each.client) == tenant_of(asked.client)]
        own = [each for each in tenants if each.client == asked.client]
        weights = {each.client: self.weights[name, each.client] for each in tenants} | {asked.client: asked.weight}
        n = Fraction(sum(weights.values()), asked.weight)
        ahead = min(sum(each.work for each in tenants), floor(n * sum(each.work for each in own)))
        delayed = min(_prompts(tenants) + 1, floor(n * (_prompts(own) + 1)))
        weights = {tenant_of(each.client): self.weights[name, tenant_of(each.client)] for each in there}
        m = Fraction(sum((weights | {tenant_of(asked.client): asked.weight}).values()), asked.weight)
        ahead = min(sum(each.work for each in there), floor(m * ahead))
        return ahead + 2 * MICRO * uncached * (1 + min(_prompts(there), floor(m * delayed)))

    def booked(self, asked: RouteRequest, at: str, candidates: dict[str, NaiveWorker], matched: int) -> None:
        output = self.outputs.get(asked.client, self.output) // SCALE
        uncached = max(0, asked.prompt_tokens - matched)
        work = MICRO * (uncached + 2 * output)
        self.outstanding[asked.request_id] = Outstanding(asked.client, work, at, uncached)
        self.weights[at, asked.client] = self.weights[at, tenant_of(asked.client)] = asked.weight

    def prompt_computed(self, running: Running) -> None:
        outstanding = self.outstanding[running.request.request_id]
        outstanding.work -= MICRO * outstanding.uncached
        outstanding.is_computed = True

    def settled(self, running: Running, output: int) -> None:
        client = running.request.client
        del self.outstanding[running.request.request_id]
        self.output += (SCALE * output - self.output) // 64
        average = self.outputs.get(client, SCALE * output)
        self.outputs[client] = average + (SCALE * output - average) // 8

    def undone(self, running: Running) -> None:
        del self.outstanding[running.request.request_id]

    def lost(self, at: str) -> None:
        self.outstanding = {name: each for name, each in self.outstanding.items() if each.at != at}

    @invariant()
    def backlogs_agree(self) -> None:
        due: dict[tuple[str, int], list[int]] = defaultdict(list)
        for each in self.outstanding.values():
            due[each.client, self.workers[each.at].member.slot].append(each.work)
        assert self.policy.outstanding() == {key: (len(works), sum(works)) for key, works in due.items()}


def _prompts(outstanding: list[Outstanding]) -> int:
    """Return how many have a prompt that is not computed."""
    return sum(not each.is_computed for each in outstanding)


TestDispatch = LeastDelayMachine.TestCase
TestDispatch.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


def test_a_prefix_is_kept_until_its_queue_costs_more_than_computing_it_again() -> None:
    """A request of one token and an expected output costs 129 units: 16 tokens are not worth waiting for it, 128 are
    worth one such wait."""
    left_at = {}
    for blocks in (1, 8):
        made, (a, _) = dispatcher("least-delay")
        chain = pack_digests(range(1, blocks + 1))
        made.progressed(a, runs(zip(range(1, blocks + 1), range(blocks), strict=True)), b"")
        asked = [request(str(n), digests=chain, prompt_tokens=16 * blocks + 1) for n in range(10)]
        left_at[blocks] = [placed(made.dispatch(each, 0)) for each in asked].index("b")
    assert left_at == {1: 1, 8: 2}


def test_a_prompt_that_is_computed_delays_nobody() -> None:
    """Worker a computes a long prompt, and worker b three short ones: b has less work until the long one is done."""
    chosen = []
    for is_computed in (False, True):
        made, (a, _) = dispatcher("least-delay")
        made.dispatch(request("long", client="other", prompt_tokens=5000, excluded=("b",)), 0)
        for number in range(3):
            made.dispatch(request(str(number), client="other", prompt_tokens=100, excluded=("a",)), 0)
        if is_computed:
            made.computed(a, "long", 1)
        chosen.append(placed(made.dispatch(request("next", client="other", prompt_tokens=100), 0)))
    assert chosen == ["b", "a"]


def test_a_call_does_not_meet_a_long_prompt_where_another_worker_only_generates() -> None:
    """It adds no delay to requests that generate, of which worker b has more; and a has more work."""
    made, (a, b) = dispatcher("least-delay")
    for number, (member, other) in enumerate([(a, "b"), (b, "a"), (b, "a"), (b, "a")]):
        made.dispatch(request(str(number), client="other", prompt_tokens=100, excluded=(other,)), 0)
        made.computed(member, str(number), 1)
    made.dispatch(request("long", client="other", prompt_tokens=5000, excluded=("b",)), 0)
    assert placed(made.dispatch(request("mine", client="mine", prompt_tokens=100), 0)) == "b"


def test_requests_that_generate_move_no_prompt_to_another_worker() -> None:
    """Worker a generates for 30 clients, and at worker b waits the prompt of one."""
    made, (a, _) = dispatcher("least-delay")
    for number in range(30):
        made.dispatch(request(str(number), client=f"other {number}", prompt_tokens=10, excluded=("b",)), 0)
        made.computed(a, str(number), 1)
    made.dispatch(request("short", client="other", prompt_tokens=2000, excluded=("a",)), 0)
    assert placed(made.dispatch(request("mine", client="mine", prompt_tokens=1500), 0)) == "a"


def test_a_flood_of_others_does_not_move_a_client_away_from_its_prefix() -> None:
    """A fair worker serves it soon: there it waits for one request of each client, not for all."""
    made, (a, _) = dispatcher("least-delay")
    made.progressed(a, runs([(1, 0), (2, 1)]), b"")
    for number in range(50):
        made.dispatch(request(str(number), client="flood", excluded=("b",)), 0)
    assert placed(made.dispatch(request("mine", digests=pack_digests([1, 2]), prompt_tokens=33), 0)) == "a"


@pytest.mark.parametrize("users", [1, 20])
def test_how_many_users_another_tenant_names_moves_nobody(users: int) -> None:
    """Worker a holds the prefix. At b wait 20 requests of another tenant: of one user, or of 20 users. A worker that is
    fair among tenants serves as much of them before the client's request."""
    made, (a, _) = dispatcher("least-delay")
    made.progressed(a, runs([(1, 0), (2, 1)]), b"")
    for number in range(20):
        made.dispatch(request(f"flood {number}", client=f"many/{number % users}", excluded=("a",)), 0)
    asked = [
        request(str(n), client="one/ann", digests=pack_digests([1, 2]), prompt_tokens=33, weight=1000) for n in range(8)
    ]
    assert [placed(made.dispatch(each, 0)) for each in asked].index("b") == 2


def test_users_of_a_tenant_count_apart_as_clients_do() -> None:
    """The client has its prefix where 8 others have one request each: it waits for one request of each tenant, or of
    each user of its own tenant."""
    chosen = {}
    for others in ("other {}/user", "own/other {}"):
        made, (a, _) = dispatcher("least-delay")
        made.progressed(a, runs([(1, 0), (2, 1), (3, 2), (4, 3)]), b"")
        for number in range(8):
            made.dispatch(request(f"{number}", client=others.format(number), excluded=("b",)), 0)
        asked = request("own", client="own/ann", digests=pack_digests([1, 2, 3, 4]), prompt_tokens=94)
        chosen[others] = placed(made.dispatch(asked, 0))
    assert set(chosen.values()) == {"b"}


def test_a_tenant_counts_once_where_it_has_work_already() -> None:
    """At a 138 units of its own work wait beside another tenant: 276 come before the request, which computes 8 tokens
    there, and 200 at b."""
    made, (a, _) = dispatcher("least-delay", config=RoutePolicyConfig(1, WeightedTokens()))
    made.progressed(a, runs((block, block - 1) for block in range(1, 13)), b"")
    made.dispatch(request("own", client="own/ann", excluded=("b",)), 0)
    for number in range(20):
        made.dispatch(request(f"flood {number}", client="many/bob", excluded=("b",)), 0)
    asked = request("asked", client="own/ann", digests=pack_digests(range(1, 13)), prompt_tokens=200)
    assert placed(made.dispatch(asked, 0)) == "a"


def test_a_prompt_that_all_cache_goes_where_nobody_waits() -> None:
    made, members = dispatcher("least-delay")
    for member in members:
        made.progressed(member, runs([(1, 0)]), b"")
    made.dispatch(request("other", client="other/bob", excluded=("b",)), 0)
    assert placed(made.dispatch(request("1", client="own/ann", digests=pack_digests([1]), prompt_tokens=16), 0)) == "b"


def test_of_equal_delays_that_of_the_shortest_queue_is_chosen_also_where_less_is_cached() -> None:
    """To compute 16 tokens at a delays the request there by as much; b computes all 32."""
    made, (a, _) = dispatcher("least-delay")
    made.progressed(a, runs([(1, 0)]), b"")
    made.dispatch(request("other", client="bob", excluded=("b",)), 0)
    assert placed(made.dispatch(request("asked", digests=pack_digests([1]), prompt_tokens=32), 0)) == "b"


class Crowd(NamedTuple):
    """Requests of a client that wait at a worker."""

    client: str
    requests: int
    weight: int
    excluded: str


@pytest.mark.parametrize(
    ("crowds", "expected"),
    [
        # At a the request delays a heavy user's one request and itself, and as many of another tenant; at b five, then
        # three.
        ([Crowd("own/bob", 1, 8000, "b"), Crowd("x", 10, 1000, "b"), Crowd("y", 5, 4000, "a")], "a"),
        ([Crowd("own/bob", 1, 8000, "b"), Crowd("x", 10, 1000, "b"), Crowd("y", 5, 2000, "a")], "b"),
        # At a it delays two of four requests, as 2,999 thousandths round down; at b three.
        ([Crowd("x", 4, 1999, "b"), Crowd("y", 3, 3000, "a")], "a"),
    ],
)
def test_as_many_requests_are_delayed_as_weights_say_and_no_more_than_wait(crowds: list[Crowd], expected: str) -> None:
    made, _ = dispatcher("least-delay")
    for crowd in crowds:
        for number in range(crowd.requests):
            made.dispatch(
                request(
                    f"{crowd.client} {number}", client=crowd.client, weight=crowd.weight, excluded=(crowd.excluded,)
                ),
                0,
            )
    assert placed(made.dispatch(request("asked", client="own/ann", prompt_tokens=100), 0)) == expected


def test_work_of_other_users_of_the_tenant_counts_beside_the_client_s_own() -> None:
    """At a 138 units of the client wait beside 138 of another user of its tenant; at b 198 units of the client."""
    made, _ = dispatcher("least-delay")
    for user, tokens, excluded in (("ann", 10, "b"), ("bob", 10, "b"), ("ann", 70, "a")):
        booked = request(f"{user} {tokens}", client=f"own/{user}", prompt_tokens=tokens, excluded=(excluded,))
        made.dispatch(booked, 0)
    assert placed(made.dispatch(request("asked", client="own/ann", prompt_tokens=1), 0)) == "b"


def test_a_client_whose_requests_all_generate_delays_one_prompt_of_each_other_client() -> None:
    """At each worker three prompts of another client wait, of which the request delays one. At a the client generates,
    and finds 160 of its 1,000 tokens; if a second one was delayed there, they would not be worth it."""
    made, (a, _) = dispatcher("least-delay")
    made.progressed(a, runs((block, block - 1) for block in range(1, 11)), b"")
    made.dispatch(request("own", excluded=("b",)), 0)
    made.computed(a, "own", 1)
    for other in "ab":
        for number in range(3):
            made.dispatch(request(f"{other} {number}", client="bob", excluded=(other,)), 0)
    asked = request("asked", digests=pack_digests(range(1, 11)), prompt_tokens=1000)
    assert placed(made.dispatch(asked, 0)) == "a"


def test_a_heavier_client_waits_for_less_of_the_others() -> None:
    """It has its prefix where eight others wait; the other worker is idle. It would wait for one request of each, or,
    with eight times the weight, for one of theirs in all."""
    chosen = {}
    for weight in (1000, 8000):
        made, (a, _) = dispatcher("least-delay")
        made.progressed(a, runs([(1, 0), (2, 1), (3, 2), (4, 3)]), b"")
        for number in range(8):
            made.dispatch(request(f"{number}", client=f"other {number}", excluded=("b",)), 0)
        asked = request("own", digests=pack_digests([1, 2, 3, 4]), prompt_tokens=94, weight=weight)
        chosen[weight] = placed(made.dispatch(asked, 0))
    assert chosen == {1000: "b", 8000: "a"}


def test_outputs_are_expected_as_long_as_the_client_s_were() -> None:
    made, (a, _) = dispatcher("least-delay", config=RoutePolicyConfig(1, WeightedTokens()))
    policy = made.policy
    assert isinstance(policy, LeastDelay)
    made.dispatch(request("first", excluded=("b",)), 0)
    assert policy.outstanding() == {("ann", a.slot): (1, (10 + 2 * 64) * MICRO)}
    made.ended(a, "first", 1, started=True, output_tokens=20)
    made.dispatch(request("second", excluded=("b",)), 0)
    assert policy.outstanding() == {("ann", a.slot): (1, (10 + 2 * 20) * MICRO)}
    made.ended(a, "second", 1, started=True, output_tokens=28)
    made.dispatch(request("third", excluded=("b",)), 0)
    assert policy.outstanding() == {("ann", a.slot): (1, (10 + 2 * 21) * MICRO)}
    made.dispatch(request("new", client="bob", excluded=("b",)), 0)
    assert policy.outstanding()["bob", a.slot] == (1, (10 + 2 * 62) * MICRO), "the average of all clients moves less"


@pytest.mark.parametrize("cost", [Profiled(), Normalized(3, 1, 1)])
def test_work_is_what_the_cost_function_says(cost: Cost) -> None:
    made, (a, _) = dispatcher("least-delay", config=RoutePolicyConfig(1, cost))
    policy = made.policy
    assert isinstance(policy, LeastDelay)
    made.dispatch(request("1", excluded=("b",)), 0)
    work = cost.extend(10, 0) + cost.decode(64, 10, 0)
    assert policy.outstanding() == {("ann", a.slot): (1, work)}


def test_two_models_of_a_worker_share_its_queue() -> None:
    made, _ = dispatcher("least-delay", workers=())
    for name in ("both", "one"):
        made.attached(identity(name, *("mn" if name == "both" else "m")), (), 0)
    made.dispatch(request("1", model="n"), 0)
    assert placed(made.dispatch(request("2", model="m"), 0)) == "one"


@pytest.mark.parametrize(
    ("workers", "holders", "is_compared"), [(16, 0, True), (17, 0, False), (16, 8, True), (20, 10, False)]
)
def test_sixteen_workers_are_compared_one_by_one_and_of_more_the_shortest_queue(
    workers: int, holders: int, is_compared: bool
) -> None:
    """The best worker has a longer queue than the others, of one client alone. Those who hold the prefix have many
    clients and are compared first, so that fewer of the others can be."""
    made, members = dispatcher("least-delay", tuple(f"w{number}" for number in range(workers)))
    *others, best = members[holders:]
    for member in members[:holders]:
        made.progressed(member, runs([(1, 0)]), b"")
    clients = {member: [f"client {n}" for n in range(20 if member in members[:holders] else 4)] for member in members}
    clients[best] = ["alone"] * 5
    for member, names in clients.items():
        for number, name in enumerate(names):
            made.accepted(member, request(f"{member.slot} {number}", client=name), 0)
    asked = request("asked", client="new", digests=pack_digests([1]), prompt_tokens=100)
    assignment = made.dispatch(asked, 0)
    assert assignment is not None
    assert assignment.member is (best if is_compared else others[0])


def test_of_many_workers_those_with_own_work_are_compared_apart() -> None:
    """The shortest queue is where the client has work already; it goes where it has none, or to its shortest own."""
    made, members = dispatcher("least-delay", tuple(f"w{number}" for number in range(20)))
    for member in members:
        for number in range(1 if member.slot < 5 else 2):
            name = "own" if member.slot < 5 else f"other {number}"
            made.accepted(member, request(f"{member.slot} {number}", client=name), 0)
    asked = [request(str(n), client="own", prompt_tokens=tokens) for n, tokens in enumerate((1, 1000))]
    assert [placed(made.dispatch(each, 0)) for each in asked] == ["w5", "w0"]


class Burst(NamedTuple):
    """Requests of one client, one after the other, which may go to one worker `only`; of `many`, each of a new user."""

    client: str
    requests: int
    tokens: int = 100
    blocks: int = 0  # of a prefix that all share
    is_heavy: bool = False
    only: int | None = None


BURSTS = st.builds(
    Burst,
    client=st.sampled_from(["f", "g", "many"]),
    requests=st.integers(1, 12),
    tokens=st.integers(1, 120),
    blocks=st.integers(0, 4),
    is_heavy=st.booleans(),
    only=st.sampled_from([None, None, 0, 1]),
)


@settings(max_examples=50, deadline=None)
@example(bursts=[Burst("f", 30, only=1), Burst("g", 12)], workers=2, weights=(1000, 1000))
@example(bursts=[Burst("many", 30, only=1), Burst("f", 12), Burst("f", 12)], workers=2, weights=(1000, 1000))
@given(
    bursts=st.lists(BURSTS, min_size=1, max_size=12),
    workers=st.sampled_from([2, 3, 20]),
    weights=st.sampled_from([(1000, 1000), (500, 4000)]),
)
def test_work_at_one_worker_is_bounded_while_another_has_none_of_the_client(
    bursts: list[Burst], workers: int, weights: tuple[int, int]
) -> None:
    """The presence lemma (docs/fairness.md). Its bound counts the other tenants, neither their users nor what they
    send."""
    made, members = dispatcher("least-delay", tuple(f"w{number}" for number in range(workers)))
    policy = made.policy
    assert isinstance(policy, LeastDelay)
    for number, burst in enumerate(bursts):
        weight = weights[burst.is_heavy]
        candidates = members if burst.only is None else [members[burst.only]]
        others = tuple(m.identity.instance for m in members if m not in candidates)
        for repeat in range(burst.requests):
            before = policy.outstanding()
            client = f"many/{number}.{repeat}" if burst.client == "many" else burst.client
            asked = request(
                f"{number}.{repeat}",
                client=client,
                prompt_tokens=burst.tokens,
                weight=weight,
                digests=pack_digests(range(1, min(burst.blocks, burst.tokens // 16) + 1)),
                excluded=others,
            )
            assignment = made.dispatch(asked, 0)
            assert assignment is not None
            _, work = policy.outstanding()[client, assignment.member.slot]
            tenants = 1 + 2 * max(weights) / weight  # both others, with the largest weight
            is_absent = any((client, member.slot) not in before for member in candidates)
            if is_absent and burst.client != "many":
                assert work <= 2 * burst.tokens * MICRO * (1 + tenants) + assignment.booked
            if number % 3 == 2:
                made.ended(assignment.member, asked.request_id, 1, True, 5 * repeat)


@pytest.mark.parametrize("is_crowded", [False, True])
def test_of_many_different_matches_the_longest_are_compared_one_by_one(is_crowded: bool) -> None:
    """Twelve workers hold beginnings of different lengths; the four with the shortest are seen as one set. It is chosen
    when the client has much work at all others."""
    blocks = 12
    made, members = dispatcher("least-delay", tuple(f"w{number}" for number in range(blocks)))
    for held, member in enumerate(members, start=1):
        made.progressed(member, runs(zip(range(1, held + 1), range(held), strict=True)), b"")
        if is_crowded and held > 4:
            made.accepted(member, request(f"own {held}", prompt_tokens=1000), 0)
    chain = pack_digests(range(1, blocks + 1))
    asked = [request(str(n), digests=chain, prompt_tokens=16 * blocks + 1) for n in range(6)]
    expected = ["w0"] if is_crowded else ["w11", "w10", "w9", "w8", "w7", "w11"]
    assert [placed(made.dispatch(each, 0)) for each in asked[: len(expected)]] == expected


def test_the_workers_with_the_shortest_matches_count_with_the_shortest_of_all() -> None:
    """As above, but w11 holds the whole prompt and 298 units of the client. The idle four count with one block, which
    leaves 354 units to compute; with the four blocks that one of them holds, it would be 258."""
    blocks = 12
    made, members = dispatcher("least-delay", tuple(f"w{number}" for number in range(blocks)))
    for held, member in enumerate(members, start=1):
        made.progressed(member, runs(zip(range(1, held + 1), range(held), strict=True)), b"")
        if held > 4:
            made.accepted(member, request(f"own {held}", prompt_tokens=170 if held == blocks else 1000), 0)
    asked = request("asked", digests=pack_digests(range(1, blocks + 1)), prompt_tokens=16 * blocks + 1)
    assert placed(made.dispatch(asked, 0)) == "w11"


def test_a_client_waits_for_no_more_of_its_tenant_than_there_is() -> None:
    """At a wait 414 units of the client, 138 of another user of its tenant and 2,128 of another tenant: twice the
    tenant's 552 are served first, not four times the client's own. At b wait 1,350 of the client."""
    made, _ = dispatcher("least-delay")
    at_a = [("own/ann", 10)] * 3 + [("own/bob", 10), ("other/eve", 2000)]
    for number, (client, tokens) in enumerate(at_a):
        made.dispatch(request(str(number), client=client, prompt_tokens=tokens, excluded=("b",)), 0)
    made.dispatch(request("at b", client="own/ann", prompt_tokens=1222, excluded=("a",)), 0)
    assert placed(made.dispatch(request("asked", client="own/ann", prompt_tokens=1), 0)) == "a"


def test_a_client_that_was_idle_longest_is_forgotten() -> None:
    table = BacklogTable(most_idle=2)
    table.client("a").output = 7
    for name in "bc":
        table.book(name, 0, 5, 1000)
        table.release(name, 0, 5)
    table.check_invariants()
    assert table.client("a").output is None


@pytest.mark.parametrize("slot", [0, 1])
def test_a_lost_worker_takes_its_backlogs_along(slot: int) -> None:
    table = BacklogTable()
    for name, at in (("a", 0), ("a", 1), ("b", 0)):
        table.book(name, at, 5, 1000)
    table.forget(slot)
    table.check_invariants()
    assert all(at != slot for _, at, _ in table.outstanding())
    assert table.worker(slot) is None

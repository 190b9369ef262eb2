"""Every policy against one conformance suite; DLPM and VTC against the pseudo-code written out."""

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from local_worker.core.accounts.tree import AccountTree
from local_worker.core.policies import WHOLE_POLICIES, QueuePolicy, QueuePolicyConfig
from local_worker.core.policies.dlpm import MAX_MISFITS, MAX_PASSED, MAX_REMATCHED
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.cost import MICRO, Normalized, WeightedTokens
from serving.sampling_params import SamplingParams
from simulation.spec import LOCAL_POLICIES as SERVED_POLICIES
from tests.unit.local_worker.core.models import (
    Item,
    NaiveDlpm,
    NaiveDrr,
    NaiveLcf,
    NaiveOracle,
    NaivePredict,
    NaiveVtc,
    NaiveWsc,
    Q,
)
from tests.unit.local_worker.engine.driving import BLOCK, make_request

LOCAL_POLICIES = {**SERVED_POLICIES, **WHOLE_POLICIES}
CLIENTS = "abc"
CONFIG = QueuePolicyConfig(
    quantum_tokens=Q // MICRO,
    cost=WeightedTokens(),
    max_input_tokens=64,
    max_output_tokens=64,
    block_tokens=4,
    most_output_tokens=256,
)


class Room:
    """A StepBudget with room for some tokens; the match of a request is its number of leading tokens 1, or `kept`."""

    def __init__(self, accounts: AccountTree) -> None:
        self._accounts = accounts
        self.left = 0
        self.kept = 1000  # tokens of each prefix that the cache keeps
        self.order: list[Request] = []
        self.beyond: dict[Request, int] = {}  # output tokens beyond a client's share
        self.awaiting: list[Request] = []  # requests whose prefix another one computes

    @property
    def closed(self) -> bool:
        return self.left <= 0

    def matched_tokens(self, request: Request) -> int:
        ones = next((i for i, token in enumerate(request.tokens) if token != 1), len(request.tokens))
        return min(ones, self.kept, len(request.tokens) - 1) // BLOCK * BLOCK

    def awaits_prefix(self, request: Request) -> bool:
        return request in self.awaiting

    def admit(self, request: Request) -> int | None:
        extend = len(request.tokens) - self.matched_tokens(request)
        if extend > self.left:
            return None
        self.left -= extend
        self.order.append(request)
        self._accounts.admitted(request)
        self._accounts.planned(request)
        owed = 0 if request.is_charged else extend
        request.charged = request.prompt_tokens
        return owed

    def reserve(self, request: Request, most: int | None = None) -> range:
        start = max(request.reserved, request.output_tokens)
        request.reserved = max(start, request.output_tokens + self.beyond.get(request, 0))
        return range(start, request.reserved)


ARRIVE = st.tuples(
    st.just("arrive"),
    st.sampled_from(CLIENTS),
    st.integers(0, 20),
    st.integers(1, 20),
    st.sampled_from((500, 1000, 3000)),
    st.booleans(),
    st.just(0) | st.integers(1, 20),
)
SELECT = st.tuples(st.just("select"), st.integers(0, 90))
GENERATE = st.tuples(st.just("generate"), st.integers(0, 5), st.integers(1, 30))
FINISH = st.tuples(st.just("finish"), st.integers(0, 5))
PREEMPT = st.tuples(st.just("preempt"))
WITHDRAW = st.tuples(st.just("withdraw"), st.integers(0, 5))
KEEP = st.tuples(st.just("keep"), st.integers(0, 20))
HISTORY = st.lists(st.one_of(ARRIVE, ARRIVE, SELECT, GENERATE, FINISH, WITHDRAW), max_size=50)
WITH_PREEMPTION = st.lists(st.one_of(ARRIVE, ARRIVE, SELECT, GENERATE, FINISH, WITHDRAW, PREEMPT), max_size=50)
WITH_EVICTION = st.lists(st.one_of(ARRIVE, ARRIVE, SELECT, GENERATE, FINISH, WITHDRAW, KEEP, KEEP), max_size=50)
COUNTERS = ("vtc", "vtc-predict", "vtc-oracle", "wsc", "lcf")  # their balances are the better the lower


class Driver:
    """Applies a history to a policy and to a naive model."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.room = Room(policy.accounts)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.finished: dict[Request, None] = {}
        self.count = 0

    @property
    def unfinished(self) -> list[Request]:
        return [request for request in self.running if request not in self.finished]

    def preempt(self, request: Request) -> None:
        request.preemptions += 1
        self.running.remove(request)
        self.waiting.append(request)
        self.policy.accounts.preempted(request)
        self.policy.preempted(request)

    def finish(self, request: Request) -> None:
        self.finished[request] = None
        self.policy.accounts.finished(request)
        self.policy.finished(request)

    def withdraw(self, request: Request) -> None:
        self.waiting.remove(request)
        self.policy.accounts.withdrawn(request)
        self.policy.withdrawn(request)

    def arrive(
        self,
        client: str,
        cached: int,
        fresh: int,
        weight: int = 1000,
        in_interaction: bool = False,
        beyond: int = 0,
    ) -> Request:
        sampling = SamplingParams(max_tokens=1 + fresh)
        request = make_request([1] * cached + [0] * fresh, arrival=self.count, sampling=sampling)
        request.client, _, request.interaction = client.partition("#")
        request.weight, request.user_weight = weight, 1_500_000 // weight
        request.in_interaction = request.is_exempt = in_interaction
        request.matched_blocks = self.room.matched_tokens(request) // BLOCK
        self.room.beyond[request] = beyond
        self.count += 1
        request.path = self.policy.accounts.path(request)
        self.policy.accounts.arrived(request)
        self.policy.arrived(request)
        self.waiting.append(request)
        return request

    def select(self, room: int) -> list[Request]:
        self.room.left, self.room.order = room, []
        admitted = self.policy.select(self.room)
        assert admitted == self.room.order, "every admission is reported, once and in order"
        for request in admitted:
            self.waiting.remove(request)
        self.running += admitted
        return admitted

    def keep(self, tokens: int) -> None:
        """Evict what the cache holds of each prefix beyond `tokens`, or fill it up to these."""
        before, self.room.kept = self.room.kept, tokens
        self.policy.cached(
            [digest for waiting in self.waiting for digest in waiting.digests[before // BLOCK : tokens // BLOCK]]
        )

    def check(self) -> None:
        self.policy.accounts.check_invariants(self.waiting, self.unfinished)
        self.policy.check_invariants()
        assert self.policy.waiting == len(self.waiting)


def play(driver: Driver, history: list[tuple[Any, ...]], heard: Callable[[str, Any], None]) -> None:
    for kind, *rest in history:
        if kind == "arrive":
            heard("arrived", driver.arrive(*rest))
        elif kind == "select":
            heard("selected", (rest[0], driver.select(rest[0])))
        elif kind == "generate" and driver.unfinished:
            request = driver.unfinished[rest[0] % len(driver.unfinished)]
            request.tokens += [0] * rest[1]
            driver.policy.generated(request, rest[1])
            heard("generated", (request, rest[1]))
        elif kind == "finish" and driver.unfinished:
            request = driver.unfinished[rest[0] % len(driver.unfinished)]
            driver.finish(request)
            heard("finished", request)
        elif kind == "keep":
            driver.keep(*rest)
        elif kind == "preempt" and driver.unfinished:
            victim = driver.policy.victim(driver.unfinished)
            assert victim in driver.unfinished
            driver.preempt(victim)
        elif kind == "withdraw" and driver.waiting:
            request = driver.waiting[rest[0] % len(driver.waiting)]
            driver.withdraw(request)
            heard("withdrawn", request)
        driver.check()


@pytest.mark.parametrize("name", LOCAL_POLICIES)
@settings(max_examples=60, deadline=None)
@given(history=WITH_PREEMPTION)
def test_conformance_nothing_is_lost_and_the_withdrawn_are_not_served(
    name: str, history: list[tuple[Any, ...]]
) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    withdrawn: list[Request] = []
    play(driver, history, lambda what, value: withdrawn.append(value) if what == "withdrawn" else None)
    driver.select(10**6)
    driver.check()
    assert not driver.waiting, "with room for all, all are admitted: the policy is work-conserving"
    assert len(driver.running) == len(set(driver.running)) == driver.count - len(withdrawn)
    assert not set(driver.running) & set(withdrawn)


@pytest.mark.parametrize("name", LOCAL_POLICIES)
@pytest.mark.parametrize("in_interaction", [False, True], ids=["plain", "in an interaction"])
def test_conformance_a_preempted_request_is_back_in_the_place_of_its_arrival(name: str, in_interaction: bool) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    for _ in range(3):
        driver.arrive("a", 0, 4, in_interaction=in_interaction)
    first, second = driver.select(8)
    driver.preempt(second)
    driver.preempt(first)
    driver.check()
    assert [request.arrival for request in driver.select(12)] == [0, 1, 2]


@pytest.mark.parametrize("name", LOCAL_POLICIES)
@settings(max_examples=60, deadline=None)
@given(history=WITH_PREEMPTION)
def test_conformance_an_empty_batch_takes_something_that_fits(name: str, history: list[tuple[Any, ...]]) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    play(driver, history, lambda *_: None)
    if driver.waiting:
        largest = max(len(request.tokens) for request in driver.waiting)
        assert driver.select(largest), "a step that could serve somebody serves somebody"


@pytest.mark.parametrize("name", LOCAL_POLICIES)
@settings(max_examples=60, deadline=None)
@given(history=WITH_PREEMPTION, most_idle=st.integers(1, 2))
def test_conformance_of_idle_clients_a_bounded_number_is_kept_and_a_forgotten_one_gains_nothing(
    name: str, history: list[tuple[Any, ...]], most_idle: int
) -> None:
    driver = Driver(LOCAL_POLICIES[name](replace(CONFIG, most_idle=most_idle)))
    better = operator.lt if name in COUNTERS else operator.gt
    left: dict[str, int] = {}  # balances of clients when their last requests were gone

    def heard(what: str, value: Any) -> None:
        active = {request.client for request in [*driver.waiting, *driver.unfinished]}
        for client in [client for client in left if client in active]:
            assert not better(driver.policy.balance(client), left.pop(client)), f"{client} gained by leaving"
        if what in ("finished", "withdrawn") and value.client not in active:
            left[value.client] = driver.policy.balance(value.client)
        if what == "selected" and name not in COUNTERS:
            left.clear()  # rounds may have paid debts
        assert len(driver.policy.accounts) <= len(active) + most_idle + 1

    play(driver, history, heard)
    driver.select(10**6)
    driver.check()
    assert not driver.waiting, "with room for all, all are admitted, also those who were forgotten"


@pytest.mark.parametrize("name", ["vtc", "wsc", "lcf"])
def test_the_highest_forgotten_counter_holds_for_clients_without_an_account(name: str) -> None:
    driver = Driver(LOCAL_POLICIES[name](replace(CONFIG, most_idle=1)))
    served = driver.arrive("a", 0, 20)
    driver.arrive("b", 0, 20)
    assert driver.select(20) == [served]
    driver.finish(served)
    assert driver.policy.balance("a") == 20 * MICRO
    for client in "cd":  # each leaves without service, and one makes room for the other
        driver.withdraw(driver.arrive(client, 0, 1))
    driver.arrive("a", 0, 20)
    assert driver.policy.balance("a") == 20 * MICRO, "b waits at zero, so a is not lifted to where it was"
    assert driver.policy.balance("newcomer") == 20 * MICRO


# The other two have no accounts.
@pytest.mark.parametrize("name", sorted({*LOCAL_POLICIES} - {"fcfs", "lpm"}))
def test_conformance_a_worker_remembers_the_latest_of_clients_that_called_once(name: str) -> None:
    policy = LOCAL_POLICIES[name](replace(CONFIG, most_idle=1_000))
    room, sampling = Room(policy.accounts), SamplingParams(max_tokens=1)
    for number in range(1_500):
        request = Request(
            id=str(number),
            client=str(number),
            tokens=[0],
            prompt_tokens=1,
            digests=[],
            chain_seed=0,
            sampling=sampling,
            arrival=number,
        )
        request.path = policy.accounts.path(request)
        policy.accounts.arrived(request)
        policy.arrived(request)
        room.left = 1
        policy.select(room)
        request.tokens.append(0)
        policy.generated(request, 1)
        policy.accounts.finished(request)
        policy.finished(request)
    policy.check_invariants()
    assert len(policy.accounts) == 1_000 + 1


@pytest.mark.parametrize("name", sorted({*LOCAL_POLICIES} - {"fcfs", "lpm"}))
def test_conformance_a_client_that_came_back_is_not_forgotten_while_it_has_requests(name: str) -> None:
    driver = Driver(LOCAL_POLICIES[name](replace(CONFIG, most_idle=1)))
    first, second, *others = (driver.arrive(client, 0, 1) for client in "aabc")
    driver.select(1)
    driver.finish(first)
    driver.withdraw(second)
    back = driver.arrive("a", 0, 1)
    driver.select(3)
    for other in others:
        driver.finish(other)
    before = driver.policy.balance("a")
    back.tokens += [0] * 9
    driver.policy.generated(back, 9)
    assert driver.policy.balance("a") != before
    assert len(driver.policy.accounts) == 1 + 2, "of the idle ones one is kept, and another until the next event"
    driver.check()


@pytest.mark.parametrize("name", sorted({*LOCAL_POLICIES} - {"fcfs", "lpm"}))
def test_conformance_clients_are_idle_after_a_preemption_or_a_withdrawal_as_after_others(name: str) -> None:
    driver = Driver(LOCAL_POLICIES[name](replace(ROOMY, most_idle=1)))
    preempted, finished, withdrawn = (driver.arrive(client, 0, 1) for client in "abc")
    driver.withdraw(withdrawn)
    driver.select(2)
    driver.preempt(preempted)
    assert driver.select(1) == [preempted]
    for request in (preempted, finished):
        driver.finish(request)
    assert len(driver.policy.accounts) == 1 + 1
    driver.check()


def test_drr_goes_on_after_a_client_that_was_forgotten_with_its_debt() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](replace(CONFIG, most_idle=0)))
    indebted = driver.arrive("a", 0, 60)
    assert driver.select(60) == [indebted]
    waiting = driver.arrive("b", 0, 1)
    driver.finish(indebted)
    driver.arrive("c", 0, 1)
    assert "a" not in driver.policy.accounts.by_client
    assert driver.select(1) == [waiting]
    driver.check()


def test_by_default_100_000_idle_clients_are_remembered() -> None:
    assert CONFIG.most_idle == MOST_IDLE == 100_000


def item(room: Room, request: Request) -> Item:
    matched = room.matched_tokens(request)
    extend = len(request.tokens) - matched
    return Item(
        request.client,
        request.arrival,
        matched,
        extend * MICRO,
        request.weight,
        request.in_interaction,
        request.sampling.max_tokens,
        room.beyond[request],
    )


# A request of the client with credit does not fit while another client is in debt, so the step grants no round.
A_MISFIT_IN_CREDIT: list[tuple[Any, ...]] = [
    ("arrive", "b", 0, 4, 1000, False),
    ("select", 90),
    ("generate", 0, 30),
    ("arrive", "b", 0, 4, 1000, False),
    ("arrive", "a", 0, 20, 1000, False),
    ("select", 3),
    ("select", 90),
]


# A round that gives one client credit leaves the other at zero.
A_ROUND_TO_ZERO: list[tuple[Any, ...]] = [
    ("arrive", "b", 0, 20, 1000, False),
    ("select", 90),
    ("arrive", "b", 0, 4, 1000, False),
    ("arrive", "a", 0, 4, 1000, False),
    ("select", 90),
]


@settings(max_examples=200, deadline=None)
@given(history=WITH_EVICTION)
@example(A_ROUND_TO_ZERO)
@example(A_MISFIT_IN_CREDIT)
def test_dlpm_is_algorithm_1(history: list[tuple[Any, ...]]) -> None:
    """Also where blocks are evicted and cached again while requests wait, as long as one step can look at all."""
    policy = LOCAL_POLICIES["dlpm"](CONFIG)
    driver, model = Driver(policy), NaiveDlpm()
    requests: dict[int, Request] = {}

    def heard(what: str, value: Any) -> None:
        if what == "arrived":
            requests[value.arrival] = value
            model.arrived(item(driver.room, value))
        elif what == "withdrawn":
            model.queue = [i for i in model.queue if i.arrival != value.arrival]
        elif what == "generated":
            model.generated(value[0].arrival, value[1])
        elif what == "selected":
            for waiting in model.queue:
                waiting.matched = driver.room.matched_tokens(requests[waiting.arrival])
                waiting.extend = (len(requests[waiting.arrival].tokens) - waiting.matched) * MICRO
            assert [r.arrival for r in value[1]] == [i.arrival for i in model.select(room_for(value[0]))]
        for client, balance in model.q.items():
            assert policy.balance(client) == balance

    arrivals = [number for number, step in enumerate(history) if step[0] == "arrive"]
    play(driver, [step for number, step in enumerate(history) if number not in arrivals[MAX_REMATCHED:]], heard)


def test_dlpm_finds_a_match_that_was_evicted_and_cached_again() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](CONFIG))
    driver.arrive("b", 4, 4)
    longer = driver.arrive("a", 8, 4)
    driver.keep(0)
    assert driver.select(0) == []
    driver.keep(8)
    assert driver.select(4) == [longer]


def test_dlpm_looks_up_a_bounded_number_of_matches_per_step() -> None:
    """Requests whose blocks were evicted are behind one that has a match; a step finds out about so many of them."""
    for stale, is_first in ((MAX_REMATCHED, True), (MAX_REMATCHED + 1, False)):
        driver = Driver(LOCAL_POLICIES["dlpm"](ROOMY))
        for _ in range(stale):
            driver.arrive("a", 16, 1).tokens[0] = 0  # nothing of it is cached any more
        matched = driver.arrive("b", 8, 1)
        driver.arrive("c", 20, 1)  # goes first; its match is as it was, which costs none of the step's number
        assert (driver.select(18)[1] is matched) == is_first


MODELS: dict[str, Callable[[], NaiveVtc | NaiveDrr]] = {
    "vtc": NaiveVtc,
    "lcf": NaiveLcf,
    "vtc-predict": NaivePredict,
    "vtc-oracle": NaiveOracle,
    "wsc": NaiveWsc,
    "drr": NaiveDrr,
}


# Two clients have debts from long outputs. The first has a waiting request, which does not fit after five rounds. In
# these rounds the other client, which has no requests, has paid its debt.
ROUNDS_FOR_DEBTORS: list[tuple[Any, ...]] = [
    *(("arrive", client, 0, 4, 1000, False) for client in "ba"),
    ("select", 90),
    ("generate", 0, 30),
    ("generate", 1, 25),
    ("finish", 1),
    ("arrive", "b", 0, 4, 1000, False),
    ("select", 0),
]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=150, deadline=None)
@given(history=HISTORY)
@example(ROUNDS_FOR_DEBTORS)
def test_each_policy_is_its_pseudo_code(name: str, history: list[tuple[Any, ...]]) -> None:
    policy = LOCAL_POLICIES[name](CONFIG)
    driver, model = Driver(policy), MODELS[name]()

    def heard(what: str, value: Any) -> None:
        if what == "arrived":
            model.arrived(item(driver.room, value))
        elif what == "withdrawn":
            model.withdrawn(next(i for i in model.queue if i.arrival == value.arrival))
        elif what == "generated":
            model.generated(value[0].arrival, value[1])
        elif what == "finished":
            model.finished(value.arrival)
        elif what == "selected":
            assert [r.arrival for r in value[1]] == [i.arrival for i in model.select(room_for(value[0]))]
        for client, counter in model.c.items():
            assert policy.balance(client) == counter

    play(driver, history, heard)


@pytest.mark.parametrize("name", COUNTERS)
def test_output_puts_a_client_that_waits_behind_others(name: str) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    running, _ = driver.arrive("a", 0, 1), driver.arrive("a", 0, 1)
    large, small = driver.arrive("b", 0, 10), driver.arrive("b", 0, 1)
    assert driver.select(11) == [running, large]
    running.tokens += [0] * 20
    driver.policy.generated(running, 20)
    driver.check()
    assert driver.select(1) == [small]


def test_a_prediction_is_charged_once_and_what_was_not_generated_of_it_is_refunded() -> None:
    driver = Driver(LOCAL_POLICIES["vtc-oracle"](CONFIG))
    request = driver.arrive("a", 0, 4)  # at most 5 output tokens, which are predicted
    driver.select(4)
    assert driver.policy.balance("a") == (4 + 2 * 5) * MICRO
    request.tokens.append(0)
    driver.policy.generated(request, 1)
    driver.preempt(request)
    assert driver.select(5) == [request]
    assert driver.policy.balance("a") == (4 + 2 * 5) * MICRO
    driver.preempt(request)
    driver.withdraw(request)
    assert driver.policy.balance("a") == (4 + 2 * 1) * MICRO


def test_the_mean_of_a_clients_last_five_outputs_is_predicted() -> None:
    driver = Driver(LOCAL_POLICIES["vtc-predict"](CONFIG))
    for length in (60, 10, 10, 10, 10, 13):
        visit = [("arrive", "a", 0, 1), ("select", 1), ("generate", 0, length), ("finish", 0)]
        play(driver, visit, lambda *_: None)
    before = driver.policy.balance("a")
    play(driver, [("arrive", "a", 0, 1), ("select", 1)], lambda *_: None)
    assert driver.policy.balance("a") == before + (1 + 2 * 10) * MICRO


def room_for(tokens: int) -> Callable[[Item], bool]:
    left = tokens * MICRO

    def can_add(candidate: Item) -> bool:
        nonlocal left
        if candidate.extend > left:
            return False
        left -= candidate.extend
        return True

    return can_add


def test_fcfs_lets_none_pass_a_request_that_does_not_fit_and_charges_nobody() -> None:
    policy = LOCAL_POLICIES["fcfs"](CONFIG)
    driver = Driver(policy)
    driver.arrive("a", 0, 20)
    driver.arrive("b", 0, 1)
    assert driver.select(10) == []
    assert len(driver.select(30)) == 2
    assert policy.balance("a") == 0


@pytest.mark.parametrize(("tokens", "most"), [(0, 0), (500, 500), (513, 512), (10_000, 512)])
def test_no_debt_is_more_than_the_output_that_memory_holds(tokens: int, most: int) -> None:
    assert replace(CONFIG, most_debt_tokens=tokens).most_debt == most * MICRO


def test_lpm_takes_the_longest_match_first() -> None:
    driver = Driver(LOCAL_POLICIES["lpm"](CONFIG))
    requests = [driver.arrive("a", cached, 3) for cached in (0, 8, 4)]
    assert driver.select(1000) == [requests[1], requests[2], requests[0]]


def test_dlpm_serves_the_longest_match_before_an_interaction_in_progress() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](CONFIG))
    continuing, cached = driver.arrive("a", 0, 3, in_interaction=True), driver.arrive("a", 8, 3)
    assert driver.select(1000) == [cached, continuing]


def test_wsc_serves_interactions_in_progress_first() -> None:
    driver = Driver(LOCAL_POLICIES["wsc"](CONFIG))
    plain, continuing = driver.arrive("a", 0, 3), driver.arrive("b", 0, 3, in_interaction=True)
    assert driver.select(1000) == [continuing, plain]


def test_wsc_serves_interactions_in_progress_by_what_their_clients_have_received() -> None:
    driver = Driver(LOCAL_POLICIES["wsc"](CONFIG))
    requests = [driver.arrive(client, 0, 1, in_interaction=True) for client in "abab"]
    assert driver.select(1) == [requests[0]]
    requests[0].tokens += [0] * 9
    driver.policy.generated(requests[0], 9)
    assert driver.select(2) == [requests[1], requests[3]]
    driver.check()


def test_dlpm_lets_a_large_request_be_passed_a_bounded_number_of_times() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](CONFIG))
    large = driver.arrive("a", 0, 20)
    passed = 0
    while large in driver.waiting and passed < 1000:
        driver.arrive("b", 0, 1)
        admitted = driver.select(19)
        if not admitted:
            driver.select(20)
            break
        passed += len(admitted)
    assert large in driver.running
    assert 0 < passed < 1000


def cold_admissions(driver: Driver, cold: list[Request], steps: int) -> list[int]:
    """Cold requests of client a wait; at each step a hot one of it arrives, and one request fits.

    Returns the steps at which cold ones were admitted.
    """
    admitted = []
    for step in range(steps):
        driver.arrive("a", 16, 4)
        if driver.select(4)[0] in cold:
            admitted.append(step)
    return admitted


def test_dlpm_promotes_a_clients_earliest_request_when_its_own_admissions_passed_it_over() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](CONFIG))
    cold = [driver.arrive("a", 0, 4) for _ in range(3)]
    every = MAX_PASSED + 1
    assert cold_admissions(driver, cold, 3 * every) == [every - 1, 2 * every - 1, 3 * every - 1], "then counts anew"


def test_dlpm_counts_anew_when_the_earliest_request_is_withdrawn() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](CONFIG))
    cold = [driver.arrive("a", 0, 4) for _ in range(2)]
    assert cold_admissions(driver, cold, MAX_PASSED) == []
    driver.withdraw(cold[0])
    assert cold_admissions(driver, cold, MAX_PASSED + 1) == [MAX_PASSED]


def test_nothing_of_a_client_goes_before_its_promoted_request_even_if_that_does_not_fit() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](replace(CONFIG, quantum_tokens=1000)))
    driver.arrive("b", 0, 1)
    assert len(driver.select(1)) == 1, "so that b has credit"
    large = driver.arrive("a", 0, 20)
    passed = 0
    for _ in range(MAX_PASSED + 2):
        driver.arrive("a", 16, 4)
        passed += len(driver.select(19))
    assert passed == MAX_PASSED
    other = driver.arrive("b", 0, 1)
    assert driver.select(19) == [other], "only its own client is held up"
    assert driver.select(20)[0] is large


def test_strict_paper_promotes_no_request() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](replace(CONFIG, strict_paper=True)))
    assert cold_admissions(driver, [driver.arrive("a", 0, 4)], 3 * MAX_PASSED) == []


def test_dlpm_leaves_out_who_awaits_a_prefix_and_strict_paper_does_not() -> None:
    for strict in (False, True):
        driver = Driver(LOCAL_POLICIES["dlpm"](replace(CONFIG, quantum_tokens=1000, strict_paper=strict)))
        first, second = driver.arrive("a", 8, 4), driver.arrive("a", 0, 4)
        driver.room.awaiting = [first]
        assert driver.select(100) == ([first, second] if strict else [second])
        driver.room.awaiting.clear()
        assert driver.select(100) == ([] if strict else [first]), "it is back in the order"


ROOMY = replace(CONFIG, quantum_tokens=1000)  # one round lasts
CREDIT = 1000 * MICRO
LARGE = 20


@pytest.mark.parametrize("misfits", [MAX_MISFITS - 1, MAX_MISFITS])
def test_a_step_looks_past_a_bounded_number_of_requests_that_do_not_fit(misfits: int) -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](ROOMY))
    for _ in range(misfits):
        driver.arrive("b", 8, LARGE)
    small = driver.arrive("a", 0, 1)
    assert driver.select(LARGE - 1) == [small][: MAX_MISFITS - misfits]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("name", "sign"), [("dlpm", -1), ("drr", -1), ("vtc", 1), ("wsc", 1)])
def test_room_is_charged_at_admission_except_under_strict_paper(name: str, sign: int, strict: bool) -> None:
    driver = Driver(LOCAL_POLICIES[name](replace(ROOMY, strict_paper=strict)))
    driver.arrive("a", 0, 4, beyond=7)
    driver.select(4)
    charged = driver.policy.balance("a") - (CREDIT if sign < 0 else 0)
    assert charged == sign * (4 + (0 if strict else 7 * (1 if name == "wsc" else 2))) * MICRO


@pytest.mark.parametrize(("name", "cost"), [("dlpm", -2), ("drr", -2), ("vtc", 2), ("wsc", 1)])
def test_a_place_in_a_step_without_a_token_costs_as_much_as_one_token(name: str, cost: int) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    running, _, _ = driver.arrive("a", 0, 8), driver.arrive("a", 0, 1), driver.arrive("b", 0, 1)
    assert driver.select(8) == [running]
    before = driver.policy.balance("a")
    driver.policy.deferred(running)
    assert driver.policy.balance("a") == before + cost * MICRO
    driver.check()


def test_the_smallest_balance_is_credit() -> None:
    driver = Driver(LOCAL_POLICIES["dlpm"](replace(CONFIG, quantum_tokens=1)))
    heavy = 1_000_001  # thousandths: the prompt of a thousand tokens costs one micro-unit less than the quantum
    driver.arrive("a", 0, 1000, weight=heavy)
    driver.arrive("a", 0, 1, weight=heavy)
    assert len(driver.select(1001)) == 2
    assert driver.policy.balance("a") == 1 - 999


U = 64 + 2 * 256  # of CONFIG: the cost of the longest prompt and of the output that fits in memory
BOUNDS = [
    ("dlpm", False, 2 * (U + 10)),
    ("dlpm", True, 2 * (U + 10)),
    ("drr", False, 2 * (U + 10) + 10),
    ("vtc", False, 2 * 2 * 256),
]


@pytest.mark.parametrize(("name", "strict", "bound"), BOUNDS)
def test_a_bound_is_the_one_of_the_theorem(name: str, strict: bool, bound: int) -> None:
    policy = LOCAL_POLICIES[name](replace(CONFIG, strict_paper=strict))
    assert policy.bound_micro == bound * MICRO
    if name == "dlpm":
        assert policy.balance_range_micro == (-(bound // 2 - 10) * MICRO, 10 * MICRO)


def test_vtcs_bound_is_the_one_of_the_longest_prompt_where_that_costs_more() -> None:
    assert LOCAL_POLICIES["vtc"](replace(CONFIG, most_output_tokens=16)).bound_micro == 2 * 64 * MICRO


@pytest.mark.parametrize("name", LOCAL_POLICIES)
@given(history=WITH_PREEMPTION)
def test_conformance_the_latest_request_of_the_client_with_the_least_claim_is_preempted(
    name: str, history: list[tuple[Any, ...]]
) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    play(driver, history, lambda *_: None)
    driver.select(1000)
    sign = -1 if name in COUNTERS else 1
    least = min(driver.unfinished, key=lambda r: (sign * driver.policy.balance(r.client), -r.arrival), default=None)
    assert least is None or driver.policy.victim(driver.unfinished) is least


@pytest.mark.parametrize("name", sorted(LOCAL_POLICIES))
def test_a_bound_holds_for_the_smallest_weight_that_was_seen(name: str) -> None:
    driver = Driver(LOCAL_POLICIES[name](CONFIG))
    driver.arrive("a", 0, 4)
    before = driver.policy.bound_micro
    driver.arrive("b", 0, 4, weight=100)
    driver.arrive("c", 0, 4, weight=900)
    expected = LOCAL_POLICIES[name](replace(CONFIG, least_weight=100)).bound_micro
    assert driver.policy.bound_micro == expected
    assert before is None or (expected is not None and expected > before)


@pytest.mark.parametrize("cost", [Normalized(3, 1, 1), Normalized(1, 3, 1)])
def test_a_bound_covers_prompts_of_either_kind_of_token(cost: Normalized) -> None:
    assert replace(CONFIG, cost=cost).most_extend == 3 * CONFIG.max_input_tokens * MICRO


def test_a_drr_visit_that_a_lack_of_room_interrupted_gets_no_second_quantum() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](CONFIG))
    first = driver.arrive("a", 0, 4)
    for client in "ab":
        driver.arrive(client, 0, 20)
    assert driver.select(5) == [first]
    first.tokens += [0] * 5
    driver.policy.generated(first, 5)
    assert driver.select(5) == []
    assert [driver.policy.balance(client) for client in "ab"] == [-4 * MICRO, 10 * MICRO]
    driver.check()


class CheapOutput(WeightedTokens):
    """A cost of one micro-unit per token of output."""

    def decode(self, tokens: int, prompt_tokens: int, output_tokens: int) -> int:
        return tokens


def test_the_smallest_debt_is_debt() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](replace(CONFIG, cost=CheapOutput())))
    request = driver.arrive("a", 0, 10)
    driver.select(10)
    assert driver.policy.balance("a") == 0
    request.tokens.append(0)
    driver.policy.generated(request, 1)
    assert driver.policy.balance("a") == -1
    driver.check()


class UnevenCost(CheapOutput):
    """A cost of `w_q` micro-units beside those of a prompt's tokens."""

    def extend(self, tokens: int, system_tokens: int) -> int:
        return tokens * MICRO + self.w_q


def drr_after_a_prompt(rest: int) -> Driver:
    """Return DRR with client a running, whose quantum of 10 has paid for its prompt but for `rest` micro-units."""
    driver = Driver(LOCAL_POLICIES["drr"](replace(CONFIG, cost=UnevenCost(w_q=-rest))))
    driver.arrive("a", 0, 10)
    driver.select(10)
    assert driver.policy.balance("a") == rest
    driver.check()
    return driver


@pytest.mark.parametrize(("rest", "order"), [(1, "aab"), (0, "aba"), (-1, "aba")])
def test_a_drr_visit_goes_on_while_a_micro_unit_is_left(rest: int, order: str) -> None:
    driver = Driver(LOCAL_POLICIES["drr"](replace(CONFIG, cost=UnevenCost(w_q=-rest))))
    for client, fresh in (("a", 10), ("a", 1), ("b", 1)):
        driver.arrive(client, 0, fresh)
    assert "".join(request.client for request in driver.select(100)) == order


@pytest.mark.parametrize(("rest", "order"), [(1, "aba"), (0, "aab"), (-1, "aab")])
def test_a_drr_visit_begins_with_a_quantum_where_nothing_is_left(rest: int, order: str) -> None:
    driver = drr_after_a_prompt(rest)
    for client in "aab":
        driver.arrive(client, 0, 1)
    assert "".join(request.client for request in driver.select(100)) == order


@pytest.mark.parametrize("rest", [1, 0, -1])
def test_drr_visits_a_client_without_waiting_requests_only_for_its_debt(rest: int) -> None:
    driver = drr_after_a_prompt(rest)
    waiting = driver.arrive("a", 0, 1)
    driver.withdraw(waiting)
    driver.check()
    [running] = driver.running
    running.tokens.append(0)
    driver.policy.generated(running, 1)
    driver.check()


def test_drr_grants_clients_in_debt_as_many_rounds_as_it_takes_until_one_that_waits_is_served() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](CONFIG))
    for client, fresh in (("a", 60), ("b", 40), ("b", 1)):
        driver.arrive(client, 0, fresh)
    assert len(driver.select(100)) == 2
    assert [driver.policy.balance(client) for client in "abc"] == [-10 * MICRO, 10 * MICRO, 0], "after four rounds"
    driver.check()


def test_the_smallest_debt_that_rounds_leave_is_debt() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](replace(CONFIG, cost=UnevenCost(w_q=1))))
    for client, fresh in (("b", 20), ("b", 1), ("a", 20)):
        driver.arrive(client, 0, fresh)
    assert len(driver.select(40)) == 2
    assert len(driver.select(0)) == 0
    assert driver.policy.balance("a") == -1
    driver.check()


def test_a_drr_visit_ends_when_the_request_that_interrupted_it_is_withdrawn() -> None:
    driver = Driver(LOCAL_POLICIES["drr"](CONFIG))
    first, large = driver.arrive("a", 0, 4), driver.arrive("a", 0, 20)
    driver.select(5)
    driver.withdraw(large)
    first.tokens += [0] * 5
    driver.policy.generated(first, 5)
    small, _ = driver.arrive("a", 0, 1), driver.arrive("b", 0, 20)
    assert driver.select(5) == [small], "a new visit gets a quantum"
    driver.check()

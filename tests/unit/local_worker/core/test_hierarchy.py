"""Hierarchical DLPM: the pseudo-code in each group of siblings, the theorems at each level, attacks on the shares."""

from collections import defaultdict, deque
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.accounts.account import Account, Path
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.plan import Plan
from local_worker.core.policies.dlpm import MAX_REMATCHED, Dlpm
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.cost import COSTS, MICRO
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.core.models import Item, NaiveHierarchy
from tests.unit.local_worker.core.test_batcher import (
    AHEAD,
    CHECK_EVERY,
    LONGEST_OUTPUT,
    PAGES,
    USED,
    Arrival,
    arrivals_of,
    tokens_for,
    worst_lead,
)
from tests.unit.local_worker.core.test_policies import (
    ARRIVE,
    CONFIG,
    FINISH,
    GENERATE,
    KEEP,
    SELECT,
    WITHDRAW,
    Driver,
    item,
    play,
    room_for,
)
from tests.unit.local_worker.engine.driving import WHOLE_DLPM, make_batcher, make_request

ALL = FairnessLevels.parse("tenant,user,interaction")
LEVELS = ("user", "tenant", "tenant,user", "user,interaction", "tenant,user,interaction")
CALLERS = ("s", "s/u", "s/u#one", "s/v#one", "s/v#two", "t/u", "t/w#one")
STEPS = st.tuples(ARRIVE, st.sampled_from(CALLERS)).map(lambda drawn: (drawn[0][0], drawn[1], *drawn[0][2:]))
HISTORY = st.lists(st.one_of(STEPS, STEPS, SELECT, GENERATE, FINISH, WITHDRAW, KEEP), max_size=50)


@pytest.mark.parametrize("text", ["", "interaction", "user,tenant", "tenant,,user", "user,user", "client"])
def test_levels_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected some of tenant, user, interaction in this order.*got"):
        FairnessLevels.parse(text)


def test_the_victim_is_of_the_tenant_deepest_in_debt_and_then_of_its_user_deepest_in_debt() -> None:
    levels = FairnessLevels.parse("tenant,user")
    driver = Driver(Dlpm(replace(CONFIG, quantum_tokens=1000, levels=levels)))
    victim, *_ = [driver.arrive(client, 0, cost) for client, cost in (("t/u", 40), ("t/v", 20), ("s/u", 50))]
    assert len(driver.select(110)) == 3
    assert driver.policy.victim(driver.running) is victim


@pytest.mark.parametrize("text", LEVELS)
def test_levels_are_written_as_they_are_read(text: str) -> None:
    assert str(FairnessLevels.parse(text)) == text


def item_of(driver: Driver, request: Request) -> Item:
    return replace(item(driver.room, request), path=request.path, user_weight=request.user_weight)


@pytest.mark.parametrize("text", LEVELS)
@settings(max_examples=40, deadline=None)
@given(history=HISTORY)
def test_dlpm_is_algorithm_1_in_each_group_of_siblings(text: str, history: list[tuple[Any, ...]]) -> None:
    levels = FairnessLevels.parse(text)
    policy = Dlpm(replace(CONFIG, levels=levels))
    model = NaiveHierarchy()
    driver = Driver(policy)
    requests: dict[int, Request] = {}

    def heard(what: str, value: Any) -> None:
        if what == "arrived":
            requests[value.arrival] = value
            model.arrived(item_of(driver, value))
        elif what == "withdrawn":
            model.queue = [waiting for waiting in model.queue if waiting.arrival != value.arrival]
        elif what == "generated":
            model.generated(value[0].arrival, value[1])
        elif what == "finished":
            model.finished(value.arrival)
        elif what == "selected":
            for waiting in model.queue:
                waiting.matched = driver.room.matched_tokens(requests[waiting.arrival])
                waiting.extend = (len(requests[waiting.arrival].tokens) - waiting.matched) * MICRO
            expected = [each.arrival for each in model.select(room_for(value[0]))]
            assert [request.arrival for request in value[1]] == expected
        for path, balance in model.q.items():
            assert policy.accounts.balance(path) == balance

    arrivals = [number for number, step in enumerate(history) if step[0] == "arrive"]
    play(driver, [step for number, step in enumerate(history) if number not in arrivals[MAX_REMATCHED:]], heard)


# --- the theorems ---------------------------------------------------------------------------------------------------

REQUESTS = arrivals_of(CALLERS)
WEIGHTS = {"s": (1000, 1000), "s/u": (3000, 500), "s/v": (500, 3000), "t/u": (1000, 500), "t/w": (3000, 1000)}
Row = dict[Path, tuple[int, bool]]


def history(batcher: Batcher, arrivals: list[Arrival], ahead: int, used: list[int], weighted: bool) -> list[Row]:
    """Per step: (service over weight, backlogged) of each account. See test_batcher.histories."""
    launched: deque[Plan] = deque()
    pending = deque(sorted(enumerate(arrivals), key=lambda entry: entry[1][4]))
    rows: list[Row] = []
    service: dict[Path, int] = defaultdict(int)
    seen: dict[Account, int] = {}  # an account that was forgotten begins again from zero
    while pending or len(batcher.queue.waiting) or len(batcher.queue.running) or launched:
        while pending and pending[0][1][4] <= len(rows):
            number, (caller, prefix, length, output, _) = pending.popleft()
            sampling = SamplingParams(max_tokens=output, ignore_eos=True)
            request = make_request([prefix] * 8 + [number % 5] * length, arrival=number, sampling=sampling)
            request.client, _, request.interaction = caller.partition("#")
            if weighted:
                request.weight, request.user_weight = WEIGHTS[request.client]
            batcher.queue.submit(request, 0.0)
        plan = batcher.plan(0.0)
        backlogged = {account.path for account in batcher.queue.accounts if account.hungry}
        if plan is not None:
            launched.append(plan)
        if len(launched) > (ahead if plan is not None else 0):
            done = launched.popleft()
            batcher.commit(done, tokens_for(done))
        for request in [each for each in batcher.queue.running if each.output_tokens >= used[each.arrival % len(used)]]:
            batcher.queue.abort(request)
        for account in (*seen, *batcher.queue.accounts):
            service[account.path] += account.weighted - seen.get(account, 0)
            seen[account] = account.weighted
        row: Row = defaultdict(lambda: (0, False))
        row |= {path: (weighted, path in backlogged) for path, weighted in service.items()}
        rows.append(row)
        if len(rows) % CHECK_EVERY == 0:
            batcher.check_invariants()
        check_balances(batcher)
    batcher.check_invariants()
    return rows


def check_balances(batcher: Batcher) -> None:
    """DLPM Theorem A.1 at each level: -U < q <= Q^u."""
    policy = batcher.queue.policy
    assert isinstance(policy, Dlpm)
    least, most = policy.balance_range_micro or (0, 0)
    for account in batcher.queue.accounts:
        assert least < account.balance <= most


def tight(
    policy: str,
    admission: AdmissionMode,
    cost: str,
    least_weight: int,
    most_idle: int,
) -> Batcher:
    return make_batcher(
        pages=PAGES,
        token_budget=16,
        max_running=4,
        max_prompt_tokens=24,
        policy=policy,
        admission=admission,
        max_output_tokens=LONGEST_OUTPUT,
        cost=COSTS[cost](),
        least_weight=least_weight,
        most_idle=most_idle,
        levels=ALL,
        most_debt_tokens=64,
    )


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weights"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("admission", AdmissionMode)
@settings(max_examples=20, deadline=None)
@given(
    arrivals=REQUESTS,
    ahead=AHEAD,
    used=USED,
    most_idle=st.sampled_from((0, MOST_IDLE)),
)
def test_siblings_that_stay_backlogged_differ_by_at_most_the_bound(
    admission: AdmissionMode,
    cost: str,
    weighted: bool,
    arrivals: list[Arrival],
    ahead: int,
    used: list[int],
    most_idle: int,
) -> None:
    """Theorems 4.1 and A.1 at each level, and 4.2 against siblings that are not backlogged, also where accounts are
    forgotten."""
    batcher = tight(WHOLE_DLPM, admission, cost, 500 if weighted else 1000, most_idle)
    rows = history(batcher, arrivals, ahead, used, weighted)
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    paths = dict.fromkeys(path for row in rows for path in row)
    for behind, lead in permutations(paths, 2):
        if behind[:-1] == lead[:-1]:
            assert worst_lead(rows, behind, lead, both=False) <= bound  # type: ignore[arg-type]
    assert batcher.queue.ledger.worst_gap <= bound


# --- attacks --------------------------------------------------------------------------------------------------------


def flood(batcher: Batcher, callers: list[str], steps: int) -> None:
    """Keep a call of each of `callers` waiting; `{}` in a name is a new number each time."""
    waiting: dict[int, Request] = {}
    arrivals = 0
    for _ in range(steps):
        for slot, caller in enumerate(callers):
            if slot not in waiting or waiting[slot] not in batcher.queue.waiting:
                sampling = SamplingParams(max_tokens=8, ignore_eos=True)
                request = waiting[slot] = make_request([arrivals % 7] * 12, arrival=arrivals, sampling=sampling)
                request.client, _, request.interaction = caller.format(arrivals).partition("#")
                arrivals += 1
                batcher.queue.submit(request, 0.0)
        plan = batcher.plan(0.0)
        assert plan is not None, "there is always something to do"
        batcher.commit(plan, tokens_for(plan))
    batcher.check_invariants()


def units(batcher: Batcher, path: Path) -> float:
    return next(account.weighted for account in batcher.queue.accounts if account.path == path) / MICRO


# The callers of two siblings, and the paths of these.
ATTACKS: dict[str, tuple[list[str], list[str], Path, Path]] = {
    "20 users of a tenant": ([f"s/{number}" for number in range(20)], ["t/u"], ("s",), ("t",)),
    "a new user for each call": ([f"s/{{}}-{number}" for number in range(20)], ["t/u"], ("s",), ("t",)),
    "a new interaction for each call": (
        [f"s/u#{{}}-{number}" for number in range(20)],
        ["s/v#one"],
        ("s", "s/u"),
        ("s", "s/v"),
    ),
    "50 sub-agents": (["s/u#root"] * 51, ["s/u#single"], ("s", "s/u", "root"), ("s", "s/u", "single")),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("admission", AdmissionMode)
@pytest.mark.parametrize("policy", ["dlpm", WHOLE_DLPM])
def test_who_splits_itself_gets_no_more_than_its_sibling(policy: str, attack: str, admission: AdmissionMode) -> None:
    many, one, path_of_many, path_of_one = ATTACKS[attack]
    batcher = tight(policy, admission, "weighted-tokens", 1000, 10)
    flood(batcher, [*many, *one * 5], 250)
    of_many, of_one = units(batcher, path_of_many), units(batcher, path_of_one)
    bound = (batcher.queue.policy.bound_micro or 0) / MICRO
    assert abs(of_many - of_one) <= bound
    assert of_one > bound, "long enough to tell a half from a twentieth"
    assert len(batcher.queue.accounts) <= 3 * (11 + len(many) + 5 + 4), "accounts are forgotten"


def test_among_users_as_siblings_a_tenant_has_as_many_shares_as_users() -> None:
    """What the levels are for."""
    many, one, *_ = ATTACKS["20 users of a tenant"]
    batcher = make_batcher(pages=PAGES, token_budget=16, max_running=4, policy="dlpm", max_output_tokens=LONGEST_OUTPUT)
    flood(batcher, [*many, *one * 5], 250)
    assert units(batcher, ("t/u",)) < sum(units(batcher, (user,)) for user in many) / 10

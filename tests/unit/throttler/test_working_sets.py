"""Claims of interactions on a pool's memory: against a naive model, and what they promise."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import Outcome
from serving.cost import WeightedTokens
from serving.names import tenant_of
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.habits import COMMON, FEWEST, PAUSES, PRIOR_PAUSE, SAMPLES, USUAL, Habits
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import Interactions
from throttler.core.memory_parts import FIRST_AFTER
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller, Rejected
from throttler.core.throttles import THROTTLES
from throttler.core.windows import LocalQuota
from throttler.core.working_sets import (
    GROUP,
    GROWTH_SECONDS,
    LEARNED,
    LONGEST_WAIT,
    PARTS,
    PATIENCE,
    RETRY_SECONDS,
    ROOM,
    SOONEST_RETRY,
    Context,
    MemoryRefusal,
    PoolMemory,
    WorkingSets,
)

POOL = PoolMemory(1000, overloaded=True)
SHARES = {"a": 1.0, "b": 2.0, "c": 1.0}
KEYS = [InteractionKey(client, "app", name) for client in ("a/u", "a/v", "b", "c/u") for name in "ijk"]


@dataclass
class NaiveClaim:
    tokens: int = 0
    prompts: list[int] = field(default_factory=list)  # in flight
    contexts: list[int] = field(default_factory=list)
    paused: float | None = None
    idle_at: float | None = -math.inf  # None while a call is in flight

    def counts(self, now: float) -> bool:
        return self.idle_at is None or now < self.idle_at


class Naive:
    """Everything is computed from the claims and from lists of all that was seen."""

    def __init__(self) -> None:
        self.claims: dict[InteractionKey, NaiveClaim] = {}
        self.pauses: dict[str, list[float]] = {}
        self.found: dict[str, list[int]] = {}
        self.footprints: dict[str, list[int]] = {}
        self.waiting: dict[tuple[str, ...], float] = {}  # (tenant,) or (tenant, client), with the end
        self.since: dict[tuple[str, ...], float] = {}
        self.growth = 1.0
        self.looked_at: float | None = None

    def held(self, now: float) -> int:
        return sum(claim.tokens for claim in self.claims.values() if claim.counts(now))

    def refuses(self, key: InteractionKey, tokens: int, pool: PoolMemory, now: float) -> bool:
        memory = self.memory(pool, now)
        if memory is None or key in self.claims:
            return False
        tenant = tenant_of(key.client)
        tokens = max(tokens - self.common(tenant), self.mean(tenant))
        divided = int(PARTS * memory)
        limit = memory if self.is_within(key, tokens, divided, now) else int(ROOM * memory)
        fits = not self.held(now) or self.held(now) + tokens <= limit
        if fits and not self.must_yield(key, divided, now):
            return False
        self.holdings(now)
        if now - self.since.get((tenant,), now) >= LONGEST_WAIT:
            return False
        self.wait(key, divided, now)
        for path in self.waiting:
            self.since.setdefault(path, now)
        return True

    def memory(self, pool: PoolMemory, now: float) -> int | None:
        if pool.overloaded:
            self.growth, self.looked_at = 1.0, now
        elif self.looked_at is None:
            return None
        else:
            self.growth, self.looked_at = self.growth * (1 + (now - self.looked_at) / GROWTH_SECONDS), now
        return int(self.growth * pool.tokens)

    def admitted(self, key: InteractionKey, prompt: int, now: float) -> None:
        tenant = tenant_of(key.client)
        if key not in self.claims:
            self.claims[key] = NaiveClaim()
            for path in ((tenant,), (tenant, key.client)):
                self.waiting.pop(path, None)
                self.since.pop(path, None)
        claim = self.claims[key]
        if not claim.prompts and claim.paused is not None and len(claim.contexts) % LEARNED == 1:
            self.pauses.setdefault(tenant, []).append(now - claim.paused)
        claim.prompts.append(prompt)
        if not claim.counts(now) or sum(claim.prompts) > claim.tokens:
            self.resize(key)
        claim.idle_at = None

    def ended(self, key: InteractionKey, prompt: int, context: Context | None, now: float) -> None:
        tenant, claim = tenant_of(key.client), self.claims[key]
        claim.prompts.remove(prompt)
        if context is not None:
            if not claim.contexts:
                self.found.setdefault(tenant, []).append(context.cached)
            claim.contexts.append(context.tokens)
        if not claim.contexts and not claim.prompts:
            del self.claims[key]
            return
        self.resize(key)
        if context is not None:
            self.footprints.setdefault(tenant, []).append(self.own(key))
        if not claim.prompts:
            claim.paused, claim.idle_at = now, now + self.usual_pause(tenant)

    def closed(self, key: InteractionKey) -> None:
        if key in self.claims and not self.claims[key].prompts:
            del self.claims[key]

    def own(self, key: InteractionKey) -> int:
        claim = self.claims[key]
        newest = (len(claim.contexts) - 1) % GROUP + 1
        largest = max([sum(claim.prompts), *claim.contexts[-newest - GROUP :]])
        return max(0, largest - self.common(tenant_of(key.client)))

    def resize(self, key: InteractionKey) -> None:
        self.claims[key].tokens = max(1, self.own(key), self.mean(tenant_of(key.client)))

    def common(self, tenant: str) -> int:
        found = sorted(self.found.get(tenant, [])[-SAMPLES:])
        return found[int(COMMON * (len(found) - 1))] if len(found) >= FEWEST else 0

    def mean(self, tenant: str) -> int:
        footprints = self.footprints.get(tenant, [])[-SAMPLES:]
        return sum(footprints) // len(footprints) if footprints else 0

    def usual_pause(self, tenant: str) -> float:
        pauses = sorted(self.pauses.get(tenant, [])[-SAMPLES:])
        if len(pauses) < FEWEST:
            return PRIOR_PAUSE
        usual = pauses[int(USUAL * (len(pauses) - 1))]
        return min([pause for pause in PAUSES if pause >= usual], default=max(PAUSES))

    def holdings(self, now: float) -> dict[str, dict[str, int]]:
        """By tenant and user, of those that hold or wait."""
        self.waiting = {path: until for path, until in self.waiting.items() if until > now}
        self.since = {path: since for path, since in self.since.items() if path in self.waiting}
        held: dict[str, dict[str, int]] = {path[0]: {} for path in self.waiting if len(path) == 1}
        for key, claim in self.claims.items():
            if claim.counts(now):
                users = held.setdefault(tenant_of(key.client), {})
                users[key.client] = users.get(key.client, 0) + claim.tokens
        for path in self.waiting:
            if len(path) == 2 and path[0] in held:
                held[path[0]].setdefault(path[1], 0)
        return held

    def is_below(self, held: dict[str, dict[str, int]], tenant: str, memory: int) -> bool:
        return sum(held[tenant].values()) * sum(map(SHARES.__getitem__, held)) < memory * SHARES[tenant]

    def user_is_below(self, held: dict[str, dict[str, int]], tenant: str, user: str, memory: int) -> bool:
        part = int(memory * SHARES[tenant] // sum(map(SHARES.__getitem__, held)))
        return held[tenant][user] * len(held[tenant]) < part

    def is_within(self, key: InteractionKey, tokens: int, memory: int, now: float) -> bool:
        held, tenant = self.holdings(now), tenant_of(key.client)
        users = held.setdefault(tenant, {})
        users.setdefault(key.client, 0)
        weights = sum(map(SHARES.__getitem__, held))
        if (sum(users.values()) + tokens) * weights > memory * SHARES[tenant]:
            return False
        return (users[key.client] + tokens) * len(users) <= int(memory * SHARES[tenant] // weights)

    def must_yield(self, key: InteractionKey, memory: int, now: float) -> bool:
        held, tenant = self.holdings(now), tenant_of(key.client)
        longest = next((path[0] for path in self.since if len(path) == 1), tenant)
        if longest != tenant and self.is_due((longest,), now) and self.is_below(held, longest, memory):
            return True
        if tenant not in held:
            return False
        others = [path[0] for path in self.waiting if len(path) == 1 and path[0] != tenant]
        if not self.is_below(held, tenant, memory) and any(self.is_below(held, other, memory) for other in others):
            return True
        user = next((path[1] for path in self.since if len(path) == 2 and path[0] == tenant), key.client)
        if user != key.client and self.is_due((tenant, user), now) and self.user_is_below(held, tenant, user, memory):
            return True
        if key.client not in held[tenant]:
            return False
        users = [path[1] for path in self.waiting if len(path) == 2 and path[0] == tenant and path[1] != key.client]
        return not self.user_is_below(held, tenant, key.client, memory) and any(
            self.user_is_below(held, tenant, user, memory) for user in users
        )

    def is_due(self, path: tuple[str, ...], now: float) -> bool:
        return now - self.since[path] >= FIRST_AFTER

    def wait(self, key: InteractionKey, memory: int, now: float) -> None:
        held, tenant = self.holdings(now), tenant_of(key.client)
        held.setdefault(tenant, {})
        held[tenant].setdefault(key.client, 0)
        if self.is_below(held, tenant, memory):
            self.waiting[tenant,] = now + PATIENCE
        if self.user_is_below(held, tenant, key.client, memory):
            self.waiting[tenant, key.client] = now + PATIENCE


class WorkingSetMachine(RuleBasedStateMachine):
    """Random calls of few interactions; who is admitted stays admitted until its interaction closes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.naive = Naive()
        self.real = WorkingSets(Habits())
        self.calls: list[tuple[InteractionKey, int]] = []

    @rule(seconds=st.sampled_from([0, 1, 2, 5, 10, 20]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(key=st.sampled_from(KEYS), prompt=st.sampled_from([0, 40, 200, 450]), overloaded=st.booleans())
    def arrives(self, key: InteractionKey, prompt: int, overloaded: bool) -> None:
        pool, share = PoolMemory(POOL.tokens, overloaded), SHARES[tenant_of(key.client)]
        refused = bool(self.real.refusal(key, share, prompt, pool, self.now))
        assert refused == self.naive.refuses(key, prompt, pool, self.now)
        if not refused:
            self.real.admitted(key, share, prompt, self.now)
            self.naive.admitted(key, prompt, self.now)
            self.calls.append((key, prompt))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), grown=st.none() | st.sampled_from([10, 100, 300]), cached=st.sampled_from([0, 20, 60]))
    def ends(self, data: st.DataObject, grown: int | None, cached: int) -> None:
        key, prompt = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        context = None if grown is None else Context(prompt + grown, cached)
        self.real.ended(key, prompt, context, self.now)
        self.naive.ended(key, prompt, context, self.now)

    @rule(key=st.sampled_from(KEYS))
    def closes(self, key: InteractionKey) -> None:
        self.real.closed(key)
        self.naive.closed(key)

    @invariant()
    def nothing_is_impossible(self) -> None:
        self.real.check_invariants()


WorkingSetMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestWorkingSets = WorkingSetMachine.TestCase


class Pool:
    """A pool of 1,000 tokens, whose calls end at once."""

    def __init__(self) -> None:
        self.sets, self.now = WorkingSets(Habits()), 0.0

    def starts(self, client: str, name: str, tokens: int, overloaded: bool = True) -> bool:
        """Return whether a new interaction is admitted; if so, its first call is answered at once."""
        key, pool = InteractionKey(client, "app", name), PoolMemory(1000, overloaded)
        if self.sets.refusal(key, 1.0, tokens, pool, self.now):
            return False
        self.turn(client, name, tokens)
        return True

    def turn(self, client: str, name: str, tokens: int) -> None:
        key = InteractionKey(client, "app", name)
        self.sets.admitted(key, 1.0, tokens, self.now)
        self.sets.ended(key, tokens, Context(tokens, 0), self.now)
        self.sets.check_invariants()

    def admits(self, client: str, tokens: int) -> bool:
        return not self.sets.refusal(InteractionKey(client, "app", "new"), 1.0, tokens, POOL, self.now)


def full() -> Pool:
    """Four interactions of one tenant that leave no room for a fifth."""
    pool = Pool()
    for name in "1234":
        assert pool.starts("big", name, 225)
    assert not pool.starts("big", "5", 20)
    return pool


def test_interactions_that_were_opened_and_left_hold_no_memory() -> None:
    pool = full()
    pool.now += PRIOR_PAUSE - 1
    assert not pool.admits("quiet", 200)
    pool.now += 1
    assert pool.admits("quiet", 200)


def test_one_that_comes_back_counts_again() -> None:
    pool = full()
    pool.now += PRIOR_PAUSE
    assert pool.admits("quiet", 200)
    for name in "1234":
        pool.turn("big", name, 200)
    assert not pool.admits("quiet", 200)


def test_interactions_rest_sooner_where_pauses_after_first_calls_are_short() -> None:
    pool = Pool()
    for number in range(FEWEST):
        name = f"earlier {number}"
        assert pool.starts("big", name, 10)
        pool.now += 1
        pool.turn("big", name, 10)
        pool.sets.closed(InteractionKey("big", "app", name))
    for name in "1234":
        assert pool.starts("big", name, 225)
    pool.now += min(PAUSES) - 1
    assert not pool.admits("quiet", 200)
    pool.now += 1
    assert pool.admits("quiet", 200)


def test_a_refusal_tells_what_does_not_fit_and_when_it_may() -> None:
    pool, key = full(), InteractionKey("quiet", "app", "new")

    def refusal(tokens: int) -> MemoryRefusal:
        found = pool.sets.refusal(key, 1.0, tokens, POOL, pool.now)
        assert found is not None
        return found

    first = refusal(210)
    assert (first.retry_after, first.limit) == (RETRY_SECONDS, 1000)
    assert first.reason == (
        "a new interaction of 210 tokens does not fit: "
        "900 of 1,000 tokens of the pool's memory are held by interactions in progress"
    )
    pool.now = 10.0
    pool.turn("big", "1", 200)
    pool.now = PRIOR_PAUSE - 2
    assert refusal(210).retry_after == 2, "three of four rest then"
    assert refusal(610).retry_after == RETRY_SECONDS, "and the other one later"
    pool.now = PRIOR_PAUSE - 0.01
    assert refusal(210).retry_after == SOONEST_RETRY
    pool.sets.admitted(InteractionKey("big", "app", "2"), 1.0, 100, pool.now)
    pool.sets.admitted(InteractionKey("big", "app", "3"), 1.0, 100, pool.now)
    assert refusal(440).retry_after == RETRY_SECONDS, "who has a call in flight does not rest"


def test_who_has_waited_for_long_is_told_to_come_when_it_is_admitted() -> None:
    pool, key = Pool(), InteractionKey("quiet", "app", "new")
    pool.sets.admitted(InteractionKey("big", "app", "1"), 1.0, 900, pool.now)
    while (refusal := pool.sets.refusal(key, 1.0, 200, POOL, pool.now)) is not None:
        pool.now += refusal.retry_after
    assert pool.now == LONGEST_WAIT


def test_who_gives_way_to_others_is_told_so() -> None:
    pool = full()
    assert not pool.admits("quiet", 200)
    for name in "12":
        pool.sets.closed(InteractionKey("big", "app", name))
    refusal = pool.sets.refusal(InteractionKey("big", "other", "new"), 1.0, 100, POOL, pool.now)
    assert refusal is not None
    assert refusal.reason.startswith("others below their parts of it wait: 450 of 1,000 tokens")


def test_free_memory_goes_to_who_waits_below_his_part() -> None:
    pool = full()
    assert not pool.starts("quiet", "a", 200)
    for name in "12":
        pool.sets.closed(InteractionKey("big", "app", name))
    assert not pool.admits("big", 200), "the quiet one waits"
    assert pool.starts("quiet", "a", 100)
    pool.sets.closed(InteractionKey("big", "app", "3"))
    assert pool.admits("big", 200), "nobody waits any more"


@pytest.mark.parametrize("clients", ["abc", ("t/a", "t/b", "t/c")])
@pytest.mark.parametrize("tokens", [350, 790, 900])
def test_an_interaction_that_is_larger_than_its_clients_part_comes_first_after_a_while(
    tokens: int, clients: Sequence[str]
) -> None:
    """Otherwise others, who always find room for small ones, would keep it out for ever."""
    pool, number, live = Pool(), 0, deque[tuple[str, str]]()
    *others, large = clients
    for second in range(100):
        pool.now += 1
        for client in others:
            for _ in range(5):
                number += 1
                if pool.starts(client, str(number), 50):
                    live.append((client, str(number)))
        for _ in range(2):
            if live:
                client, name = live.popleft()
                pool.sets.closed(InteractionKey(client, "app", name))
        if second >= 20 and second % 5 == 0 and pool.starts(large, "large", tokens):
            assert pool.sets.parts.held <= max(ROOM * 1000, tokens), "others have waited"
            return
    raise AssertionError("it never came")


SIZES = st.sampled_from([20, 50, 100, 200, 400, 900])
ARRIVALS = st.lists(st.tuples(st.sampled_from("abc"), SIZES), max_size=3)  # in a second
HISTORY = st.lists(st.tuples(ARRIVALS, st.integers(0, 3), st.booleans()), min_size=20, max_size=60)


@settings(max_examples=60, deadline=None)
@given(HISTORY, SIZES)
def test_nobody_waits_for_ever_and_who_was_admitted_always_passes(
    history: list[tuple[list[tuple[str, int]], int, bool]], tokens: int
) -> None:
    """Whatever others begin, go on with and end, a tenant that holds nothing and asks every five seconds is admitted
    within LONGEST_WAIT, and before that only where its claim fits."""
    pool, number, live = Pool(), 0, deque[tuple[str, str, int]]()
    pool.starts("z", "for ever", 300)
    pool.sets.admitted(InteractionKey("z", "app", "for ever"), 1.0, 300, pool.now)  # it has a call in flight
    for second, (arrivals, closing, go_on) in enumerate(cycle(history)):
        pool.now += 1
        for tenant, size in arrivals:
            number += 1
            if pool.starts(tenant, str(number), size):
                live.append((tenant, str(number), size))
        for tenant, name, size in list(live)[-5:] if go_on else ():
            assert pool.starts(tenant, name, size), "its interaction is in progress"
        for _ in range(min(closing, len(live))):
            tenant, name, _ = live.popleft()
            pool.sets.closed(InteractionKey(tenant, "app", name))
        if second % RETRY_SECONDS == 0 and pool.starts("quiet", "large", tokens):
            assert second >= LONGEST_WAIT or pool.sets.parts.held <= 1000
            return
        assert second < LONGEST_WAIT, "it still waits"


def test_who_waits_and_never_comes_blocks_nobody_for_long() -> None:
    pool = full()
    assert not pool.admits("quiet", 200)
    pool.sets.closed(InteractionKey("big", "app", "1"))
    pool.now += PATIENCE - 1
    assert not pool.admits("big", 200)
    pool.now += 1
    assert pool.admits("big", 200)


def test_a_tenants_users_have_equal_parts_of_its_part() -> None:
    pool = Pool()
    for name in "1234":
        assert pool.starts("t/busy", name, 200)
    assert not pool.starts("t/quiet", "1", 200)
    pool.sets.closed(InteractionKey("t/busy", "app", "1"))
    assert not pool.admits("t/busy", 200)
    assert pool.starts("t/quiet", "1", 200)


def test_a_user_still_waits_when_another_one_of_its_tenant_that_held_nothing_is_admitted() -> None:
    pool = Pool()
    assert pool.starts("big", "1", 400)
    assert pool.starts("t/waits", "1", 200)
    assert not pool.starts("t/waits", "2", 420)
    pool.sets.closed(InteractionKey("t/waits", "app", "1"))
    assert pool.starts("t/comes", "1", 250)
    pool.sets.closed(InteractionKey("big", "app", "1"))
    pool.turn("t/comes", "1", 450)
    assert not pool.admits("t/comes", 200), "half of its tenant's part is the other one's"
    assert pool.admits("t/waits", 200)


def test_who_stays_within_his_part_enters_whatever_others_have_borrowed() -> None:
    pool = Pool()
    for name in "12":
        assert pool.starts("big", name, 300)
    assert not pool.starts("big", "3", 310), "of what is divided it has a part: all"
    assert pool.starts("other", "1", 50)
    assert not pool.starts("big", "3", 20), "it has more than its part, and the room for whoever comes is full"
    refusal = pool.sets.refusal(InteractionKey("big", "app", "3"), 1.0, 300, POOL, pool.now)
    assert refusal is not None
    assert refusal.reason.endswith(
        "650 of 1,000 tokens of the pool's memory are held by interactions in progress, "
        "and beyond 650 enter only those that stay within their parts"
    )
    assert not pool.starts("quiet", "1", 301), "more than a third of 900"
    assert pool.starts("quiet", "1", 300)
    assert not pool.starts("other", "2", 51), "of all memory 50 are left"


def test_twenty_users_of_a_tenant_have_its_part_together() -> None:
    pool = full()
    assert not pool.admits("quiet", 200)
    pool.sets.closed(InteractionKey("big", "app", "1"))
    for user in range(20):
        assert not pool.admits(f"big/{user}", 200), "its tenant is above its part"
    assert pool.admits("quiet", 200)


def test_nothing_is_refused_before_the_first_overload_and_more_fits_as_long_as_there_is_none() -> None:
    pool = Pool()
    for name in range(10):
        assert pool.starts("t", str(name), 200, overloaded=False)
    assert not pool.starts("t", "refused", 200)
    pool.now += 1
    for name in range(10):
        pool.turn("t", str(name), 200)
    assert not pool.starts("t", "refused", 200, overloaded=False)
    pool.now += 3 * GROWTH_SECONDS
    for name in range(10):
        pool.turn("t", str(name), 200)
    assert pool.starts("t", "later", 200, overloaded=False)


def test_an_interaction_larger_than_the_memory_is_admitted_alone() -> None:
    pool = Pool()
    assert pool.starts("t", "1", 5000)
    assert not pool.starts("t", "2", 10)


def test_tokens_that_all_interactions_of_an_app_have_in_common_are_claimed_by_none() -> None:
    pool = Pool()
    for name in range(FEWEST + SAMPLES):
        key = InteractionKey("t", "app", f"first-{name}")
        pool.sets.admitted(key, 1.0, 190, pool.now)
        pool.sets.ended(key, 190, Context(200, 180), pool.now)
        pool.sets.closed(key)
    held = [pool.starts("t", str(name), 190) for name in range(60)]
    assert 30 < sum(held) < 60, "of 20 tokens each, beside those in common"


def decider(throttle: str) -> Decider:
    profiles = Profiles(limits=RateLimits(user_per_minute=1000))
    return Decider(
        THROTTLES[throttle](profiles, LocalQuota(), 60.0),
        Interactions("secret", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )


def call(client: str, interaction: str, token: bytes = b"") -> Arrival:
    caller = Caller(tenant_of(client), client, "app")
    return Arrival(caller, interaction, token, overloaded=True, prompt_tokens=400, pool_tokens=1000)


def test_calls_of_admitted_interactions_always_pass() -> None:
    one, now, tokens = decider("oit"), 0.0, dict[str, bytes]()
    for turn in range(40):
        now += 1.0
        for name in ("a", "b", "c"):
            decision = one.decide(call("t", name, tokens.get(name, b"")), now)
            if name in tokens or (turn == 0 and name in "ab"):
                assert isinstance(decision, Permit), f"turn {turn} of {name}"
                tokens[name] = decision.token
                one.ended(decision, None, now, Context(400 + turn * 20, 0))
            else:
                assert isinstance(decision, Rejected)
                assert (decision.outcome, decision.limit) == (Outcome.THROTTLED_MEMORY, 650)
                assert decision.retry_after > 0
        one.check_invariants()
    assert isinstance(one.decide(call("t", "c"), now + PRIOR_PAUSE + 1), Permit), "the others have gone idle"


def test_an_interaction_that_another_gateway_admitted_passes_in_a_full_pool() -> None:
    opened = decider("oit").decide(call("t", "elsewhere"), 0.0)
    assert isinstance(opened, Permit)
    one = decider("oit")
    for name in "ab":
        assert isinstance(one.decide(call("t", name), 1.0), Permit)
    assert isinstance(one.decide(call("t", "elsewhere"), 1.0), Rejected)
    assert isinstance(one.decide(call("t", "elsewhere", opened.token), 1.0), Permit)


@pytest.mark.parametrize(("throttle", "interaction"), [("none", "task"), ("rpm", "task"), ("oit", "")])
def test_without_interactions_or_their_throttle_nothing_is_refused(throttle: str, interaction: str) -> None:
    one = decider(throttle)
    for number in range(50):
        decision = one.decide(call("t", interaction and f"{interaction}-{number}"), 0.0)
        assert isinstance(decision, Permit)
    one.check_invariants()


def test_a_call_that_is_withdrawn_leaves_no_claim() -> None:
    one = decider("oit")
    permits = [one.decide(call("t", name), 0.0) for name in "ab"]
    assert isinstance(one.decide(call("t", "c"), 0.0), Rejected)
    for permit in permits:
        assert isinstance(permit, Permit)
        one.withdrawn(permit, 0.0)
    assert isinstance(one.decide(call("t", "c"), 0.0), Permit)
    one.check_invariants()

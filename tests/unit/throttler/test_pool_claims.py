"""Claims on one pool that several gateways share: against a naive union, and what they promise together."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from throttler.core.habits import PRIOR_PAUSE
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.pool_claims import PoolClaims
from throttler.core.working_sets import PATIENCE, Context, PoolMemory

MODEL = "m"
POOL = PoolMemory(1000, overloaded=True)  # of which claims may have 800
CLIENTS = ("a/u", "a/v", "b", "c/u")


class Gateways:
    """Several gateways before one pool, whose calls end when they are told to."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.claims = [PoolClaims() for _ in range(count)]
        self.calls: list[tuple[int, InteractionKey, int]] = []

    def exchange(self) -> None:
        views = [claims.view(self.now) for claims in self.claims]
        for number, claims in enumerate(self.claims):
            claims.replace_remote([view for other, view in enumerate(views) if other != number], self.now)
            claims.check_invariants()

    def starts(self, number: int, client: str, name: str, tokens: int) -> bool:
        """Return whether a new interaction is admitted; if so, its first call begins."""
        sets, key = self.claims[number].of(MODEL), InteractionKey(client, "app", name)
        if sets.refusal(key, 1.0, tokens, POOL, self.now) is not None:
            return False
        self.continues(number, key, tokens)
        return True

    def continues(self, number: int, key: InteractionKey, tokens: int) -> None:
        self.claims[number].of(MODEL).admitted(key, 1.0, tokens, self.now)
        self.calls.append((number, key, tokens))

    def ends(self, call: tuple[int, InteractionKey, int]) -> None:
        number, key, tokens = call
        self.calls.remove(call)
        self.claims[number].of(MODEL).ended(key, tokens, Context(tokens, 0), self.now)

    def held(self, number: int) -> int:
        return self.claims[number].of(MODEL).parts.held


def test_memory_that_one_gateway_gave_is_not_free_at_another() -> None:
    gateways = Gateways(2)
    for name in "1234":
        assert gateways.starts(0, "big", name, 200)
    gateways.exchange()
    assert gateways.held(1) == 800
    assert not gateways.starts(1, "big", "5", 200)
    for call in list(gateways.calls):
        gateways.ends(call)
    gateways.now += PRIOR_PAUSE
    gateways.exchange()
    assert gateways.held(1) == 0, "they are idle"
    assert gateways.starts(1, "big", "5", 200)


def test_many_at_once_exceed_the_limit_by_one_interaction_per_other_gateway_at_most() -> None:
    for count in (2, 3, 5):
        gateways = Gateways(count)
        gateways.exchange()
        for name in range(3):
            for number in range(count):
                for tenant in range(20):
                    gateways.starts(number, f"t{tenant}", f"{name}-{number}-{tenant}", 100)
            gateways.exchange()
        assert 900 <= gateways.held(0) <= 1000 + 100 * (count - 1)


def test_an_interaction_whose_calls_come_to_several_gateways_counts_once() -> None:
    gateways, key = Gateways(3), InteractionKey("t", "app", "wandering")
    for number, tokens in enumerate((100, 150, 200)):
        gateways.continues(number, key, tokens)
    gateways.exchange()
    assert [gateways.held(number) for number in range(3)] == [100, 150, 200], "as the gateway itself has seen it"
    assert gateways.starts(0, "t", "another", 100)
    gateways.exchange()
    assert gateways.held(2) == 300


def test_who_waits_at_one_gateway_below_his_part_is_given_way_at_another() -> None:
    gateways = Gateways(2)
    for name in "1234":
        assert gateways.starts(0, "big", name, 225)
    gateways.exchange()
    assert not gateways.starts(0, "quiet", "a", 200)
    assert not gateways.starts(1, "big", "5", 200)
    gateways.exchange()
    gateways.claims[0].closed(InteractionKey("big", "app", "1"))
    call = gateways.calls[0]
    gateways.ends(call)
    gateways.claims[0].closed(call[1])
    gateways.exchange()
    assert not gateways.starts(1, "big", "5", 200), "the quiet one waits at the other gateway"
    assert gateways.starts(0, "quiet", "a", 200)
    gateways.exchange()
    for name in "23":
        gateways.ends(gateways.calls[0])
        gateways.claims[0].closed(InteractionKey("big", "app", name))
    gateways.exchange()
    assert gateways.starts(1, "big", "5", 200), "nobody waits any more"


def test_a_gateway_that_stopped_holds_nothing_and_lets_nobody_wait() -> None:
    gateways = Gateways(2)
    for name in "1234":
        assert gateways.starts(0, "big", name, 225)
    assert not gateways.starts(0, "quiet", "a", 200)
    gateways.exchange()
    assert not gateways.starts(1, "big", "5", 200)
    gateways.claims[1].replace_remote([], gateways.now)
    assert all(gateways.starts(1, "big", name, 200) for name in "5678")
    gateways.now += PATIENCE
    gateways.claims[1].check_invariants()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_gateway_knows_its_own_claims_and_the_largest_of_each_other_interaction(seed: int) -> None:
    random, gateways = Random(seed), Gateways(3)
    keys = [InteractionKey(client, "app", name) for client in CLIENTS for name in "ijk"]
    for _ in range(40):
        gateways.now += random.choice((0, 0, 1, 7))
        number, key, tokens = random.randrange(3), random.choice(keys), random.choice((20, 90, 300))
        if random.random() < 0.4 and gateways.calls:
            gateways.ends(random.choice(gateways.calls))
        elif random.random() < 0.3:
            gateways.claims[number].closed(key)
        elif random.random() < 0.3:
            gateways.starts(number, key.client, key.id, tokens)
        else:
            gateways.continues(number, key, tokens)
        if random.random() < 0.3:
            views = [
                {claim.digest: claim.tokens for claim in claims.of(MODEL).view(gateways.now).claims}
                for claims in gateways.claims
            ]
            gateways.exchange()
            for here, own in enumerate(views):
                others = [view for other, view in enumerate(views) if other != here]
                known = {digest for view in others for digest in view} - own.keys()
                remote = sum(max(view.get(digest, 0) for view in others) for digest in known)
                assert gateways.held(here) == sum(own.values()) + remote
        for claims in gateways.claims:
            claims.check_invariants()

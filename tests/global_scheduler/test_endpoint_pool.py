"""The pool of a picker against a naive count of who has which request."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from global_scheduler.core.endpoint_pool import POOL, REST_SECONDS, EndpointPool, EndpointSize, Pick
from global_scheduler.core.policies import POLICIES, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.recent_blocks import RecentBlocks
from serving.blocks import chain, pack_digests, unpack_digests
from serving.cost import MICRO, WEIGHT_ONE, WeightedTokens

ADDRESSES = [f"10.0.0.{n}:80" for n in range(4)]
SIZE = EndpointSize(running=4, kv_tokens=40, block_tokens=2)


def request(number: int, prompt: bytes = b"", excluded: frozenset[str] = frozenset()) -> RouteRequest:
    digests = chain(prompt, SIZE.block_tokens, 7)
    return RouteRequest(str(number), 0, "ann", POOL, digests, len(prompt) // 4, WEIGHT_ONE, excluded)


def pool(policy: str = "doubleq", quantum: int = 100) -> EndpointPool:
    return EndpointPool(POLICIES[policy](RoutePolicyConfig(quantum, WeightedTokens())), 60, SIZE)


class PoolMachine(RuleBasedStateMachine):
    """Requests come and end in every way, endpoints come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool()
        self.now = 0.0
        self.numbers = 0
        self.open: list[Pick] = []
        self.endpoints: set[str] = set()

    @rule(endpoints=st.sets(st.sampled_from(ADDRESSES)))
    def changes(self, endpoints: set[str]) -> None:
        gone = self.endpoints - endpoints
        self.open = [each for each in self.open if each.endpoint not in gone]
        self.endpoints = endpoints
        self.pool.set_endpoints(sorted(endpoints), self.now)

    @rule(prompt=st.binary(max_size=64), excluded=st.frozensets(st.sampled_from(ADDRESSES), max_size=2))
    def places(self, prompt: bytes, excluded: frozenset[str]) -> None:
        self.numbers += 1
        placement = self.pool.place(request(self.numbers, prompt, excluded=excluded), self.now)
        if placement is None:
            assert not self.endpoints - excluded
            return
        named = [placement.endpoint, *placement.fallbacks]
        assert len(set(named)) == len(named)
        assert set(named) <= self.endpoints - excluded
        self.open.append(placement)

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), served=st.sampled_from(["", *ADDRESSES]), tokens=st.integers(0, 9))
    def is_answered(self, pick: int, served: str, tokens: int) -> None:
        placement = self.open.pop(pick % len(self.open))
        expected = served if served in self.endpoints else placement.endpoint
        self.pool.served(placement, served, self.now)
        assert placement.endpoint == expected
        self.pool.ended(placement, tokens)

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), is_answered=st.booleans())
    def is_refused(self, pick: int, is_answered: bool) -> None:
        placement = self.open.pop(pick % len(self.open))
        if is_answered:
            self.pool.served(placement, "", self.now)
        self.pool.refused(placement)

    @rule(seconds=st.floats(0, 2 * REST_SECONDS))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def counts_agree(self) -> None:
        expected = Counter(each.endpoint for each in self.open)
        assert {each: self.pool.outstanding(each) for each in self.pool.endpoints} == {
            each: expected[each] for each in self.endpoints
        }
        self.pool.check_invariants()


PoolMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestPool = PoolMachine.TestCase


def test_an_endpoint_that_a_proxy_passed_over_rests() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    placement = tried.place(request(1), 0.0)
    assert placement is not None
    tried.served(placement, ADDRESSES[1], 0.0)
    tried.ended(placement, 1)
    chosen = [tried.place(request(number), at) for number, at in ((2, 0.0), (3, 9.9), (4, 10.0))]
    assert [each.endpoint for each in chosen if each] == [ADDRESSES[1], ADDRESSES[1], ADDRESSES[0]]


def test_a_request_rather_goes_to_an_endpoint_that_rests_than_nowhere() -> None:
    tried = pool()
    tried.set_endpoints(ADDRESSES[:2], 0.0)
    for number, served in enumerate((ADDRESSES[1], ADDRESSES[0])):
        placement = tried.place(request(number), 0.0)
        assert placement is not None
        tried.served(placement, served, 0.0)
        tried.ended(placement, 1)
    assert tried.place(request(2), 0.0) is not None


def test_a_refund_leaves_16_tokens_charged_and_an_end_charges_prompt_and_output() -> None:
    policy = DoubleQ(RoutePolicyConfig(1000, WeightedTokens()))
    tried = EndpointPool(policy, 60, SIZE)
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    for number, (is_refused, charged) in enumerate(((True, 16), (False, 16 + 100 + 2 * 30))):
        placement = tried.place(request(number, b"x" * 400), 0.0)
        assert placement is not None
        assert policy.balance("ann", POOL, 0) == (1000 - 100 - 16 * number) * MICRO
        if is_refused:
            tried.refused(placement)
        else:
            tried.served(placement, "", 0.0)
            tried.ended(placement, 30)
        assert policy.balance("ann", POOL, 0) == (1000 - charged) * MICRO


def test_what_an_endpoint_was_sent_long_ago_is_forgotten() -> None:
    tried = pool("least-loaded")
    tried.set_endpoints(ADDRESSES[:1], 0.0)
    matched = []
    for number, letter in enumerate(b"abca"):  # each of 12 blocks, of which 20 fit
        placement = tried.place(request(number, bytes([letter]) * 96), 0.0)
        assert placement is not None
        matched.append(placement.matched_tokens)
        tried.served(placement, "", 0.0)
        tried.ended(placement, 1)
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

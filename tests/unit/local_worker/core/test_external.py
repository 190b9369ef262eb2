"""The batch of an external engine: pages against a naive account, and the bound over an engine with its own loop."""

import random
from collections import Counter, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.errors import TooLong
from fairlead.outcomes import FinishReason
from fairlead.token_ids import pack_ids
from local_worker.core.engine_cache import EngineCache
from local_worker.core.external import ExternalBatch, ExternalQueue, LongPrompts
from local_worker.core.limits import BatchLimits
from local_worker.core.policies import WHOLE_POLICIES, QueuePolicyConfig
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams

BLOCK = 4
SEED = 7
LONGEST_PROMPT = 24
LONGEST_OUTPUT = 12
POLICIES = ("dlpm", "vtc", "fcfs", "drr")
PART, MOST_LONG = 4, 3  # of the 16 tokens of a step


def make_batch(
    *,
    policy: str = "dlpm",
    pages: int = 20,
    max_running: int = 4,
    token_budget: int = 16,
    longest_prompt: int = LONGEST_PROMPT,
    long_prompts: LongPrompts = LongPrompts.PARTS,
) -> ExternalBatch:
    cost = WeightedTokens()
    config = QueuePolicyConfig(
        quantum_tokens=16,
        cost=cost,
        max_input_tokens=longest_prompt,
        max_output_tokens=LONGEST_OUTPUT,
        most_output_tokens=min(max_running * LONGEST_OUTPUT, pages * BLOCK),
        block_tokens=BLOCK,
    )
    limits = BatchLimits(
        max_running=max_running,
        token_budget=token_budget,
        max_prompt_tokens=longest_prompt,
        max_waiting=1000,
        max_waiting_per_client=1000,
    )
    cache = EngineCache(pages, BLOCK)
    return ExternalBatch(ExternalQueue(WHOLE_POLICIES[policy](config), cache, cost, limits, long_prompts))


def make_request(client: str, tokens: list[int], output: int, arrival: int, deadline: float | None = None) -> Request:
    return Request(
        id=f"r{arrival}",
        client=client,
        tokens=tokens,
        prompt_tokens=len(tokens),
        digests=list(unpack_digests(chain(pack_ids(tokens), BLOCK, SEED))),
        chain_seed=SEED,
        sampling=SamplingParams(max_tokens=output),
        arrival=arrival,
        deadline=deadline,
    )


class ExternalBatchMachine(RuleBasedStateMachine):
    """Submits, hand-overs, tokens, aborts, deadlines, blocks that come and go, and requests of others."""

    def __init__(self) -> None:
        super().__init__()
        self.batch, self.most_long, self.is_chained = make_batch(), MOST_LONG, False
        self.missing: dict[Request, int] = {}  # tokens of the prompts of requests that have no token yet
        self.counted: dict[Request, int] = {}  # tokens that a step can take of them
        self.links: dict[Request, int] = {}  # where the engine is to compute a prefix of a prompt: how far
        self.waiting: list[Request] = []
        self.running: dict[Request, tuple[int, ...]] = {}  # -> digests that it found cached
        self.cached: dict[int, int] = {}
        self.left: list[Request] = []
        self.arrivals = 0
        self.others = (0, 0)
        self.now = 0.0

    @initialize(policy=st.sampled_from(POLICIES), long_prompts=st.sampled_from(LongPrompts))
    def choose(self, policy: str, long_prompts: LongPrompts) -> None:
        """Any policy decides among the requests that may go, to any engine."""
        self.batch = make_batch(policy=policy, long_prompts=long_prompts)
        self.most_long = 1 if long_prompts is LongPrompts.WHOLE else MOST_LONG
        self.is_chained = long_prompts is LongPrompts.CHAIN

    @rule(
        client=st.sampled_from("abc"),
        prefix=st.sampled_from([0, 4, 8, 16]),
        length=st.integers(1, LONGEST_PROMPT - 16),
        output=st.integers(1, LONGEST_OUTPUT),
        lifetime=st.none() | st.integers(1, 6),
    )
    def submit(self, client: str, prefix: int, length: int, output: int, lifetime: int | None) -> None:
        tokens = [1] * prefix + [2 + self.arrivals] * length
        deadline = None if lifetime is None else self.now + lifetime
        request = make_request(client, tokens, output, self.arrivals, deadline)
        self.arrivals += 1
        assert self.batch.queue.submit(request, self.now) is None
        self.waiting.append(request)

    @rule()
    def submit_too_long(self) -> None:
        request = make_request("a", [1] * (LONGEST_PROMPT + 1), 1, -1)
        with pytest.raises(TooLong):
            self.batch.queue.submit(request, self.now)

    @rule()
    def hand_over(self) -> None:
        for request in self.batch.hand_over(self.now):
            assert sum(self.counted.values()) < 16, "the engine had enough to compute"
            missing = len(request.tokens) - request.cached
            if missing > PART:
                long = [other.client for other, left in self.missing.items() if left > PART]
                assert request.client not in long
                assert len(long) < self.most_long
            self.missing[request] = missing
            self.counted[request] = min(missing, self.most_taken() if missing > PART else PART)
            found = tuple(request.digests[: request.cached // BLOCK])
            assert {*found} <= self.cached.keys()
            self.running[request] = found
            self.waiting.remove(request)
        assert self.batch.queue.uncomputed == sum(self.counted.values())
        if all(missing <= PART for missing in self.missing.values()):
            # No long miss is at the engine. Of those that a client has set aside, the earliest is back.
            assert self.batch.queue.choosable >= len({request.client for request in self.waiting})

    def most_taken(self) -> int:
        """Of a long miss in a step: the part, or an equal share of three parts in whole blocks."""
        return max(BLOCK, 3 * PART // self.long() // BLOCK * BLOCK) if self.is_chained else PART

    @precondition(lambda self: self.missing)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """The engine computes a link; where none is left, it is given the whole prompt, and computes a token later."""
        request = data.draw(st.sampled_from(list(self.missing)))
        if (link := self.links.pop(request, None)) is not None:
            self.batch.queue.linked(request, link)
        left, most = len(request.tokens) - request.computed, self.most_taken() if self.long() else PART
        stop = self.batch.queue.next_link(request)
        if self.is_chained and left > PART and left > most:
            assert stop == request.computed + most
            assert stop % BLOCK == 0
            self.links[request], self.counted[request] = stop, most
        else:
            assert stop is None
            if self.is_chained:
                self.counted[request] = left
        assert self.batch.queue.uncomputed == sum(self.counted.values())

    def long(self) -> int:
        return sum(missing > PART for missing in self.missing.values())

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 3))
    def receive(self, data: st.DataObject, count: int) -> None:
        request = data.draw(st.sampled_from(list(self.running)))
        if request in self.links:
            return
        count = min(count, request.sampling.max_tokens - request.output_tokens)
        ends = request.output_tokens + count == request.sampling.max_tokens
        before = request.service
        (advance,) = self.batch.received(request, [9] * count, FinishReason.LENGTH if ends else None)
        assert request.tokens[-count:] == list(advance.tokens) == [9] * count
        assert request.service == before + 2 * MICRO * count
        self._computed(request)
        if ends:
            self._left(request)

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([*self.waiting, *self.running]))
        self.batch.queue.abort(request)
        self._left(request)
        assert self.batch.received(request, [9], None) == []

    @rule(seconds=st.integers(1, 3))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        late = {one for one in [*self.waiting, *self.running] if one.deadline and one.deadline <= self.now}
        passed = self.batch.queue.expired(self.now)
        assert {*passed} == late
        for request in passed:
            self._left(request)

    def _left(self, request: Request) -> None:
        if request in self.running:
            del self.running[request]
            self._computed(request)
            self.left.append(request)
        else:
            self.waiting.remove(request)

    def _computed(self, request: Request) -> None:
        for known in (self.missing, self.counted, self.links):
            known.pop(request, None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        digests = data.draw(st.sampled_from(list(self.running))).digests
        links = [link for link in zip(digests, (0, *digests), strict=False) if link[0] not in self.cached]
        self.batch.queue.cache.cached(links)
        self.cached.update(links)

    @precondition(lambda self: self.cached)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        leaf = data.draw(st.sampled_from([digest for digest in self.cached if digest not in self.cached.values()]))
        self.batch.queue.cache.evicted([leaf, 12345])
        del self.cached[leaf]

    @rule(requests=st.integers(0, 4), pages=st.integers(0, 20))
    def others_come_and_go(self, requests: int, pages: int) -> None:
        self.others = (requests, pages)
        self.batch.observe_others(requests, pages)

    @rule()
    def none_is_kept_back_without_reason(self) -> None:
        """An engine that has nothing of ours or of others takes a request of ours at once."""
        if not self.running:
            self.others_come_and_go(0, 0)
            self.hand_over()
            assert self.running or not self.waiting

    @invariant()
    def the_engine_is_never_given_more_than_it_holds(self) -> None:
        self.batch.check_invariants()
        assert (len(self.batch.queue.running), len(self.batch.queue.waiting)) == (len(self.running), len(self.waiting))
        found = {digest for digests in self.running.values() for digest in digests}
        promised = sum(-(-one.budget // BLOCK) - len(digests) for one, digests in self.running.items()) + len(found)
        assert self.batch.queue.cache.tokens_used == promised * BLOCK <= self.batch.queue.cache.pages * BLOCK

    @invariant()
    def requests_that_left_are_told_once(self) -> None:
        assert self.batch.queue.take_left() == self.left
        self.left = []

    def teardown(self) -> None:
        cached, evicted = self.batch.queue.cache.changes.take_events()
        assert {digest for digest, _ in cached} == self.cached.keys()
        assert not {*evicted} & self.cached.keys()


TestExternalBatch = ExternalBatchMachine.TestCase
TestExternalBatch.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def submitted(batch: ExternalBatch, *prompts: list[int]) -> list[Request]:
    """Return requests of one client with these prompts, which wait."""
    requests = [make_request("a", tokens, 1, arrival) for arrival, tokens in enumerate(prompts)]
    for request in requests:
        assert batch.queue.submit(request, 0.0) is None
    return requests


def test_requests_of_others_take_places() -> None:
    batch = make_batch(max_running=2)
    one, two, three, four = submitted(batch, [1], [2], [3], [4])
    batch.observe_others(1, 0)
    assert batch.hand_over(0.0) == [one]
    batch.observe_others(0, 0)
    assert batch.hand_over(0.0) == [two]
    for request in (one, two):
        batch.received(request, [9], FinishReason.LENGTH)
    assert batch.hand_over(0.0) == [three, four], "as many as run at once"
    alone = make_batch(max_running=2)
    requests = submitted(alone, [1], [2], [3])
    assert alone.hand_over(0.0) == requests[:2], "nothing is known of others"


def test_pages_of_others_are_given_to_nobody() -> None:
    batch = make_batch(pages=4)
    requests = submitted(batch, [*range(8)])
    batch.observe_others(1, 2)
    assert batch.hand_over(0.0) == [], "three pages for nine tokens"
    batch.observe_others(1, 1)
    assert batch.hand_over(0.0) == requests


def test_a_request_whose_prefix_is_cached_meanwhile_goes_first() -> None:
    batch = make_batch(max_running=1)
    _, second = submitted(batch, [*range(9)], [*range(10, 19)])
    batch.queue.cache.cached(list(zip(second.digests, (0, *second.digests), strict=False)))
    assert batch.hand_over(0.0) == [second]
    assert batch.queue.uncomputed == 1, "eight of nine tokens are cached"
    batch.received(second, [9], None)
    assert batch.queue.uncomputed == 0


def test_a_prompt_counts_as_what_a_step_can_take_of_it() -> None:
    batch = make_batch()
    long, short = make_request("a", [1] * 20, 1, 0), make_request("b", [2] * 3, 1, 1)
    for request in (long, short):
        batch.queue.submit(request, 0.0)
    assert batch.hand_over(0.0) == [long, short]
    assert batch.queue.uncomputed == 4 + 3
    batch.received(long, [9], FinishReason.LENGTH)
    assert batch.queue.uncomputed == 3


def test_long_misses_leave_a_part_of_each_step_to_others_and_a_client_has_one_at_a_time() -> None:
    batch = make_batch(pages=60, max_running=8)
    clients = ["a", "a", "b", "c", "d"]
    requests = [make_request(client, [7 + arrival] * 20, 1, arrival) for arrival, client in enumerate(clients)]
    for request in requests:
        batch.queue.submit(request, 0.0)
    handed_over = batch.hand_over(0.0)
    assert sorted(request.client for request in handed_over) == ["a", "b", "c"]
    assert batch.hand_over(0.0) == []
    batch.received(handed_over[1], [9], None)
    assert [request.client for request in batch.hand_over(0.0)] == ["d"], "a has one at the engine"
    batch.check_invariants()


def test_one_long_miss_of_the_background_class_is_at_the_engine_and_two_of_others_beside_it() -> None:
    batch = make_batch(pages=60, max_running=8)
    requests = [make_request(client, [7 + arrival] * 20, 1, arrival) for arrival, client in enumerate("abcde")]
    for request in requests:
        request.background = request.client in "ab"
        batch.queue.submit(request, 0.0)
    handed_over = batch.hand_over(0.0)
    assert sum(request.background for request in handed_over) == 1
    assert len(handed_over) == 3
    batch.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_short_prompt_passes_any_number_of_long_ones_that_wait(policy: str) -> None:
    batch = make_batch(policy=policy, pages=500, max_running=100)
    whales = [make_request("a", [7 + arrival] * 20, 1, arrival) for arrival in range(80)]
    for request in whales:
        batch.queue.submit(request, 0.0)
    for arrival in range(80, 100):
        batch.hand_over(0.0)
        short = make_request("b", [arrival] * 3, 1, arrival)
        batch.queue.submit(short, 0.0)
        assert batch.hand_over(0.0) == [short]
        batch.received(short, [9], FinishReason.LENGTH)
        batch.check_invariants()


def test_a_long_miss_that_leaves_makes_way_for_the_next_one() -> None:
    batch = make_batch(pages=60)
    requests = [
        make_request("a", [7 + arrival] * 20, 1, arrival, 3.0 if arrival == 2 else None) for arrival in range(4)
    ]
    for request in requests:
        batch.queue.submit(request, 0.0)
    first, second, third, fourth = requests
    assert batch.hand_over(0.0) == [first]
    batch.queue.abort(second)
    batch.check_invariants()
    assert batch.queue.expired(5.0) == [third]
    batch.check_invariants()
    batch.queue.abort(first)
    assert batch.hand_over(5.0) == [fourth]
    assert batch.queue.take_left() == [first]
    batch.check_invariants()


def test_a_long_prompt_whose_prefix_is_cached_is_no_long_miss() -> None:
    batch = make_batch(pages=60)
    first, second = make_request("a", [1] * 20, 1, 0), make_request("a", [2] * 20, 1, 1)
    batch.queue.cache.cached(list(zip(second.digests, (0, *second.digests), strict=False)))
    for request in (first, second):
        batch.queue.submit(request, 0.0)
    assert batch.hand_over(0.0) == [second, first]


@pytest.mark.parametrize(("long_prompts", "part"), [(LongPrompts.PARTS, PART), (LongPrompts.CHAIN, None)])
def test_beside_long_prompts_a_short_one_waits_for_one_step(long_prompts: LongPrompts, part: int | None) -> None:
    waits, computed = beside_long_prompts(long_prompts, part)
    whole_waits, whole_computed = beside_long_prompts(LongPrompts.PARTS, None)
    assert max(waits) == 1
    assert min(whole_waits) > 10, "the engine gives whole steps to one prompt"
    assert computed > 0.7 * whole_computed


def beside_long_prompts(long_prompts: LongPrompts, part: int | None) -> tuple[list[int], float]:
    """The steps that short prompts wait beside long ones, and what the engine computes in a step."""
    batch = make_batch(pages=1000, max_running=8, longest_prompt=400, long_prompts=long_prompts)
    engine, arrivals, waits, total = OwnLoop(batch, 16, delay=0, part=part), 0, [], 0
    for turn in range(60):
        for client in ("a", "b", "c"):
            while batch.queue.accounts.waiting(client) < 3:
                batch.queue.submit(make_request(client, [7 + arrivals] * 400, 1, arrivals), 0.0)
                arrivals += 1
        short = make_request("quiet", [7 + arrivals] * 3, 2, arrivals)
        batch.queue.submit(short, 0.0)
        arrivals, steps = arrivals + 1, 0
        while short in batch.queue.waiting or short in batch.queue.running:
            engine.step(0.0)
            total += 1
            steps += not short.output_tokens
        if turn:
            waits.append(steps + 1)
    batch.check_invariants()
    return waits, engine.computed.total() / total


def test_a_chain_is_charged_as_one_prompt_and_each_link_adds_to_the_last() -> None:
    ended = []
    for long_prompts in LongPrompts:
        batch = make_batch(pages=60, longest_prompt=60, long_prompts=long_prompts)
        request = make_request("a", [*range(58)], 2, 0)
        batch.queue.cache.cached(list(zip(request.digests[:2], (0, *request.digests), strict=False)))
        batch.queue.submit(request, 0.0)
        assert batch.hand_over(0.0) == [request]
        links = []
        while (stop := batch.queue.next_link(request)) is not None:
            links.append(stop)
            assert batch.queue.uncomputed == 12
            batch.queue.linked(request, stop)
            batch.check_invariants()
        assert links == ([20, 32, 44, 56] if long_prompts is LongPrompts.CHAIN else [])
        for finish in (None, FinishReason.LENGTH):
            batch.received(request, [9], finish)
        assert batch.queue.uncomputed == 0
        ended.append((request.cached, request.service, batch.queue.ledger.weighted, request.account.service))
    assert ended[0] == (8, (50 + 2 * 2) * MICRO, ended[0][2], (50 + 2 * 2) * MICRO)
    assert ended == ended[:1] * len(LongPrompts)


@pytest.mark.parametrize(("tokens", "link"), [(48, None), (49, 48)])
def test_a_prompt_that_is_as_long_as_a_link_goes_at_once(tokens: int, link: int | None) -> None:
    batch = make_batch(pages=60, token_budget=64, longest_prompt=60, long_prompts=LongPrompts.CHAIN)
    [request] = submitted(batch, [*range(tokens)])
    assert batch.hand_over(0.0) == [request]
    assert batch.queue.next_link(request) == link


def test_chains_share_three_quarters_of_a_step_and_one_that_leaves_makes_room() -> None:
    batch = make_batch(pages=100, token_budget=64, longest_prompt=100, long_prompts=LongPrompts.CHAIN)
    first, second = make_request("a", [1] * 90, 1, 0), make_request("b", [2] * 90, 1, 1)
    batch.queue.submit(first, 0.0)
    assert batch.hand_over(0.0) == [first]
    assert batch.queue.next_link(first) == 48
    batch.queue.submit(second, 0.0)
    assert batch.hand_over(0.0) == [second]
    assert batch.queue.next_link(second) == 24
    batch.queue.linked(first, 48)
    assert batch.queue.next_link(first) == 72
    batch.queue.abort(second)
    batch.queue.linked(second, 24)
    assert batch.queue.next_link(second) is None, "it has left"
    batch.queue.linked(first, 72)
    assert batch.queue.next_link(first) is None, "18 tokens are left"
    assert batch.queue.uncomputed == 18
    batch.check_invariants()


@pytest.mark.parametrize(
    ("told", "caches_prefixes", "expected"),
    [
        (1, False, LongPrompts.PARTS),
        (16, False, LongPrompts.PARTS),
        (16, True, LongPrompts.PARTS),
        (17, True, LongPrompts.CHAIN),
        (17, False, LongPrompts.WHOLE),
        (0, True, LongPrompts.CHAIN),
        (0, False, LongPrompts.WHOLE),
        (None, True, LongPrompts.CHAIN),
        (None, False, LongPrompts.PARTS),
    ],
)
def test_an_engine_tells_how_it_computes_long_prompts(
    told: int | None, caches_prefixes: bool, expected: LongPrompts
) -> None:
    assert LongPrompts.of(told, caches_prefixes, 64) is expected


class OwnLoop:
    """An engine with a loop of its own: each step computes at most `token_budget` tokens, prompts in the order given.

    At most `part` tokens of a prompt are computed in a step, unless it is None. Tokens arrive `delay` steps after they
    were generated.
    """

    def __init__(self, batch: ExternalBatch, token_budget: int, delay: int, part: int | None = None) -> None:
        self.batch = batch
        self.prompts: dict[Request, int] = {}  # -> prompt tokens left to compute
        self.generated: Counter[Request] = Counter()
        self.computed: Counter[str] = Counter()  # client -> service in cost units, as computed
        self._links: dict[Request, int | None] = {}  # how far the engine is to compute a prompt now; None: to its end
        self._linked: list[Request] = []  # whose link is computed: the next one comes with the next step
        self._budget = token_budget
        self._part = part or token_budget
        self._sent: deque[list[Request]] = deque([[] for _ in range(delay)])

    def step(self, now: float) -> None:
        for request in [*self.batch.hand_over(now), *self._linked]:
            self._links[request] = stop = self.batch.queue.next_link(request)
            self.prompts[request] = (stop or len(request.tokens)) - request.computed
        self._linked.clear()
        left, sent = self._budget, []
        for request in list(self.prompts):
            tokens = min(left, self._part, self.prompts[request] or 1)
            if self.prompts[request]:
                self.prompts[request] -= tokens
                self.computed[request.client] += tokens
            if tokens and not self.prompts[request] and (stop := self._links[request]) is not None:
                self.batch.queue.linked(request, stop)
                del self.prompts[request]
                self._linked.append(request)
            elif tokens and not self.prompts[request] and self.generated[request] < request.sampling.max_tokens:
                self.generated[request] += 1
                self.computed[request.client] += 2
                sent.append(request)
            left -= tokens
        self._sent.append(sent)
        for request in self._sent.popleft():
            ends = request.output_tokens + 1 == request.sampling.max_tokens
            self.batch.received(request, [9], FinishReason.LENGTH if ends else None)
            if ends:
                del self.prompts[request]


def contend(policy: str, steps: int = 400) -> tuple[ExternalBatch, OwnLoop, int]:
    """A flooder and two clients with few requests each, all backlogged; returns the largest lag of what is computed."""
    batch, dice, arrivals, budget, lag = make_batch(policy=policy), random.Random(5), 0, 16, 0
    engine = OwnLoop(batch, budget, delay=2)
    for step in range(steps):
        for client, wanted in (("flood", 40), ("chat", 3), ("agent", 3)):
            waiting = sum(request.client == client for request in batch.queue.waiting)
            for _ in range(wanted - waiting):
                tokens = [dice.randrange(100) for _ in range(dice.randrange(1, LONGEST_PROMPT + 1))]
                batch.queue.submit(make_request(client, tokens, dice.randrange(1, LONGEST_OUTPUT + 1), arrivals), step)
                arrivals += 1
        engine.step(step)
        batch.check_invariants()
        for account in batch.queue.accounts.clients:
            lag = max(lag, abs(account.service // MICRO - engine.computed[account.name]))
    return batch, engine, lag


def test_the_bound_holds_over_an_engine_with_its_own_loop() -> None:
    batch, engine, lag = contend("dlpm")
    assert batch.queue.policy.bound_micro is not None
    assert 0 < batch.queue.ledger.worst_gap <= batch.queue.policy.bound_micro
    # In flight: prompts that were given and not yet computed, and three steps' tokens of the requests at the engine.
    assert lag <= 16 + LONGEST_PROMPT + 3 * 2 * 4
    assert (
        max(engine.computed.values()) - min(engine.computed.values())
        <= batch.queue.policy.bound_micro // MICRO + 2 * lag
    )


def test_without_a_fair_policy_the_flooder_takes_nearly_all() -> None:
    _, fair, _ = contend("dlpm")
    batch, engine, _ = contend("fcfs")
    assert batch.queue.policy.bound_micro is None
    assert engine.computed["flood"] > 3 * engine.computed["chat"]
    assert fair.computed["flood"] < 1.2 * fair.computed["chat"]
    assert sum(fair.computed.values()) > 0.95 * sum(engine.computed.values())


def test_the_prompt_of_a_request_that_has_left_is_not_waited_for() -> None:
    batch = make_batch()
    (request,) = submitted(batch, [1] * 8)
    assert batch.hand_over(0.0) == [request]
    assert batch.queue.uncomputed == PART
    batch.queue.abort(request)
    assert batch.queue.uncomputed == 0
    assert batch.queue.take_left() == [request]

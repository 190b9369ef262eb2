"""The batch of an external engine: pages against a naive account, and the bound over an engine with its own loop."""

import random
from collections import Counter, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.errors import TooLong
from fairlead.outcomes import FinishReason
from fairlead.token_ids import pack_ids
from local_worker.core.engine_cache import EngineCache
from local_worker.core.external import ExternalBatch
from local_worker.core.limits import BatchLimits
from local_worker.core.policies import WHOLE_POLICIES, QueuePolicyConfig
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams

BLOCK = 4
SEED = 7
LONGEST_PROMPT = 24
LONGEST_OUTPUT = 12


def make_batch(*, policy: str = "dlpm", pages: int = 20, max_running: int = 4, token_budget: int = 16) -> ExternalBatch:
    cost = WeightedTokens()
    config = QueuePolicyConfig(
        quantum_tokens=16,
        cost=cost,
        max_input_tokens=LONGEST_PROMPT,
        max_output_tokens=LONGEST_OUTPUT,
        most_output_tokens=min(max_running * LONGEST_OUTPUT, pages * BLOCK),
        block_tokens=BLOCK,
    )
    limits = BatchLimits(
        max_running=max_running,
        token_budget=token_budget,
        max_prompt_tokens=LONGEST_PROMPT,
        max_waiting=1000,
        max_waiting_per_client=1000,
    )
    return ExternalBatch(RequestQueue(WHOLE_POLICIES[policy](config), EngineCache(pages, BLOCK), cost, limits))


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
        self.batch = make_batch()
        self.waiting: list[Request] = []
        self.running: dict[Request, tuple[int, ...]] = {}  # -> digests that it found cached
        self.cached: dict[int, int] = {}
        self.left: list[Request] = []
        self.arrivals = 0
        self.others = (0, 0)
        self.now = 0.0

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
        uncomputed = self.batch.uncomputed
        for request in self.batch.hand_over(self.now):
            assert uncomputed < 16, "the engine had enough to compute"
            uncomputed += len(request.tokens) - request.cached
            found = tuple(request.digests[: request.cached // BLOCK])
            assert {*found} <= self.cached.keys()
            self.running[request] = found
            self.waiting.remove(request)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 3))
    def receive(self, data: st.DataObject, count: int) -> None:
        request = data.draw(st.sampled_from(list(self.running)))
        count = min(count, request.sampling.max_tokens - request.output_tokens)
        ends = request.output_tokens + count == request.sampling.max_tokens
        before = request.service
        (advance,) = self.batch.received(request, [9] * count, FinishReason.LENGTH if ends else None)
        assert request.tokens[-count:] == list(advance.tokens) == [9] * count
        assert request.service == before + 2 * MICRO * count
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
            self.left.append(request)
        else:
            self.waiting.remove(request)

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
        assert self.batch.take_left() == self.left
        self.left = []

    def teardown(self) -> None:
        cached, evicted = self.batch.queue.cache.take_events()
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
    assert batch.uncomputed == 1, "eight of nine tokens are cached"
    batch.received(second, [9], None)
    assert batch.uncomputed == 0


class OwnLoop:
    """An engine with a loop of its own: each step computes at most `token_budget` tokens, prompts in the order given.

    Its tokens arrive `delay` steps after they were generated.
    """

    def __init__(self, batch: ExternalBatch, token_budget: int, delay: int) -> None:
        self.batch = batch
        self.prompts: dict[Request, int] = {}  # -> prompt tokens left to compute
        self.generated: Counter[Request] = Counter()
        self.computed: Counter[str] = Counter()  # client -> service in cost units, as computed
        self._budget = token_budget
        self._sent: deque[list[Request]] = deque([[] for _ in range(delay)])

    def step(self, now: float) -> None:
        for request in self.batch.hand_over(now):
            self.prompts[request] = len(request.tokens) - request.computed
        left, sent = self._budget, []
        for request in list(self.prompts):
            tokens = min(left, self.prompts[request]) if self.prompts[request] else min(left, 1)
            if self.prompts[request]:
                self.prompts[request] -= tokens
                self.computed[request.client] += tokens
            if tokens and not self.prompts[request] and self.generated[request] < request.sampling.max_tokens:
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
    assert 0 < batch.queue.fairness_gap <= batch.queue.policy.bound_micro
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
    assert engine.computed["flood"] > 5 * engine.computed["chat"]
    assert fair.computed["flood"] < 1.2 * fair.computed["chat"]
    assert sum(fair.computed.values()) > 0.95 * sum(engine.computed.values())


def test_the_prompt_of_a_request_that_has_left_is_not_waited_for() -> None:
    batch = make_batch()
    (request,) = submitted(batch, [1] * 8)
    assert batch.hand_over(0.0) == [request]
    assert batch.uncomputed == 8
    batch.queue.abort(request)
    assert batch.uncomputed == 0
    assert batch.take_left() == [request]

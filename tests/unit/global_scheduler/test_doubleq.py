"""DoubleQ within a dispatcher against Algorithm 2 written out, loops and all, with its two misprints corrected."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

from hypothesis import settings
from hypothesis.stateful import invariant

from global_scheduler.core.fleet import WorkerLoad
from global_scheduler.core.policies import RoutePolicy, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.doubleq import KEPT_TOKENS, DoubleQ
from serving.blocks import pack_digests, runs
from serving.cost import MICRO, WEIGHT_ONE, Normalized, Profiled
from tests.unit.global_scheduler.dispatch_machine import (
    CAPACITY,
    CLIENTS,
    MODELS,
    Chain,
    DispatchMachine,
    NaiveWorker,
    Running,
)
from tests.unit.global_scheduler.driving import CONFIG, QUANTUM, dispatcher, identity, placed, request

Account = tuple[str, str]  # client and model


class DoubleQMachine(DispatchMachine):
    """Balances `q` by worker and account, in micro-units: what is absent has never been used and is a full quantum."""

    def __init__(self) -> None:
        self.q: dict[str, dict[Account, int]] = {}
        super().__init__()

    def make_policy(self) -> RoutePolicy:
        self.policy = DoubleQ(CONFIG)
        return self.policy

    def joins(self, name: str, models: str) -> None:
        super().joins(name, models)
        self.q[name] = {}

    def lost(self, at: str) -> None:
        pass  # `joins` begins new accounts

    def balance(self, name: str, account: Account) -> int:
        return self.q[name].get(account, QUANTUM * MICRO)

    def select(self, asked: RouteRequest, chain: Chain, candidates: dict[str, NaiveWorker]) -> str:
        """SELECTWORKER."""
        account = asked.client, asked.model
        longest = max(worker.matches(chain) for worker in candidates.values())
        self.replenish(account, candidates)
        available = [name for name in candidates if self.balance(name, account) > 0]
        sticky = [name for name in available if candidates[name].matches(chain) == longest]
        chosen, shortest = min(sticky or available, key=self.order), min(available, key=self.order)
        length, other = self.workers[chosen].s, self.workers[shortest].s
        queues = self.workers[chosen].waiting or length >= CAPACITY[chosen]
        if queues and Fraction(length, CAPACITY[chosen]) > Fraction(3, 2) * Fraction(other + 1, CAPACITY[shortest]):
            return shortest
        return chosen

    def replenish(self, account: Account, candidates: dict[str, NaiveWorker]) -> None:
        """Lines 4 to 6."""
        while not any(self.balance(name, account) > 0 for name in candidates):
            for name in self.pool(account[1]):
                if self.balance(name, account) <= 0:
                    self.q[name][account] += QUANTUM * MICRO

    def booked(self, asked: RouteRequest, at: str, candidates: dict[str, NaiveWorker], matched: int) -> None:
        account = asked.client, asked.model
        self.replenish(account, candidates)
        self.q[at][account] = self.balance(at, account) - micro(asked.prompt_tokens, asked)

    def settled(self, running: Running, output: int) -> None:
        self.q[running.at][running.request.client, running.request.model] -= micro(2 * output, running.request)

    def undone(self, running: Running) -> None:
        asked, account = running.request, (running.request.client, running.request.model)
        refund = micro(asked.prompt_tokens, asked) - micro(min(KEPT_TOKENS, asked.prompt_tokens), asked)
        self.q[running.at][account] = min(QUANTUM * MICRO, self.q[running.at][account] + refund)

    @invariant()
    def accounts_agree(self) -> None:
        for name, worker in self.workers.items():
            for account in product(CLIENTS, MODELS):
                assert self.policy.balance(*account, worker.member.slot) == self.balance(name, account), (name, account)


def micro(tokens: int, asked: RouteRequest) -> int:
    """What so many prompt tokens are charged, in micro-units."""
    return tokens * MICRO * WEIGHT_ONE // asked.weight


TestDispatch = DoubleQMachine.TestCase
TestDispatch.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


def test_a_prefix_sticks_to_its_worker_until_the_quantum_is_spent() -> None:
    made, _ = dispatcher("doubleq")
    prompt = {"prompt_tokens": 40, "digests": pack_digests([7])}
    placements = [placed(made.dispatch(request(str(n), **prompt), 0)) for n in range(4)]
    assert placements == ["a", "a", "a", "b"]


def test_a_prefix_is_left_where_requests_wait_for_it_beside_idle_workers() -> None:
    prompt = {"prompt_tokens": 4, "digests": pack_digests([7])}
    placements = {}
    for strict in (False, True):
        made, (a, _) = dispatcher("doubleq", config=replace(CONFIG, strict_paper=strict))
        first = [placed(made.dispatch(request(str(n), client=str(n), **prompt), 0)) for n in range(3)]
        made.reported(a, WorkerLoad(waiting=1), 0)
        then = [placed(made.dispatch(request(str(n), client=str(n), **prompt), 0)) for n in range(3, 6)]
        placements[strict] = first + then
    assert placements == {False: list("aaabbb"), True: list("aaaaaa")}


def test_a_prompt_that_was_aborted_before_its_first_token_is_held_nowhere() -> None:
    made, (a, _) = dispatcher("doubleq")
    prompt = {"prompt_tokens": 20, "digests": pack_digests([7])}
    for name, output_tokens, matched_then in (("aborted", 0, 0), ("answered", 1, 16)):
        assert placed(made.dispatch(request(name, excluded=("b",), **prompt), 0)) == "a"
        made.ended(a, name, 1, True, output_tokens)
        probe = made.dispatch(request(f"after {name}", excluded=("b",), **prompt), 0)
        assert probe is not None
        assert probe.matched_tokens == matched_then
        made.withdrawn(f"after {name}", 1)


def test_models_have_separate_accounts() -> None:
    made, _ = dispatcher("doubleq", workers=("a",))
    other = made.attached(identity("n1", "n"), (), 0)
    made.dispatch(request("1", prompt_tokens=1000), 0)
    assert placed(made.dispatch(request("2", model="n"), 0)) == other.identity.worker
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 1000) * MICRO
    assert policy.balance("ann", "n", other.slot) == (QUANTUM - 10) * MICRO


def test_a_weight_divides_what_is_charged() -> None:
    made, _ = dispatcher("doubleq", workers=("a",))
    made.dispatch(request("1", prompt_tokens=60, weight=2000), 0)
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 30) * MICRO


def test_the_account_that_was_used_least_recently_is_dropped_for_one_too_many() -> None:
    policy = DoubleQ(replace(CONFIG, most_idle=2))
    for client in ("first", "second", "first", "third"):
        policy.placed(request("1", client=client), 0, 0b1, 0)
    assert policy.balance("first", "m", 0) == (QUANTUM - 20) * MICRO
    assert policy.balance("second", "m", 0) == QUANTUM * MICRO


def test_output_is_charged_from_its_first_token_on() -> None:
    config = RoutePolicyConfig(10_000, Profiled())
    made, [worker] = dispatcher("doubleq", workers=("a",), config=config)
    made.dispatch(request("1", prompt_tokens=10), 0)
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    before = policy.balance("ann", "m", 0)
    made.ended(worker, "1", 1, started=True, output_tokens=5)
    assert before - policy.balance("ann", "m", 0) == Profiled().decode(5, 10, 0)


def test_submitting_and_cancelling_is_not_free() -> None:
    made, _ = dispatcher("doubleq", workers=("a",))
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    for number in range(3):
        made.dispatch(request(str(number), prompt_tokens=90), 0)
        made.withdrawn(str(number), 1)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 3 * KEPT_TOKENS) * MICRO


def test_prompts_cost_what_they_would_without_a_system_prompt() -> None:
    """The scheduler does not know which tokens are the system prompt; of a cancelled call some tokens stay charged."""
    cost = Normalized(3, 1, 1)
    made, _ = dispatcher("doubleq", workers=("a",), config=RoutePolicyConfig(10_000, cost))
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    for number, tokens in enumerate((90, KEPT_TOKENS // 2)):
        before = policy.balance("ann", "m", 0)
        made.dispatch(request(str(number), prompt_tokens=tokens), 0)
        assert before - policy.balance("ann", "m", 0) == cost.extend(tokens, 0)
        made.withdrawn(str(number), 1)
        assert before - policy.balance("ann", "m", 0) == cost.extend(min(KEPT_TOKENS, tokens), 0)


def test_a_worker_that_was_away_does_not_hoard_credit() -> None:
    made, (a, b) = dispatcher("doubleq")
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    made.dispatch(request("0", prompt_tokens=150, excluded=("b",)), 0)
    for number in range(1, 20):
        made.dispatch(request(str(number), prompt_tokens=100, excluded=("a",)), 0)
    assert 0 < policy.balance("ann", "m", a.slot) <= QUANTUM * MICRO
    assert policy.balance("ann", "m", b.slot) <= QUANTUM * MICRO


def test_requests_that_another_process_placed_are_counted() -> None:
    made, [worker] = dispatcher("doubleq", workers=("a",))
    made.dispatch(request("own"), 0)
    for name in ("own", "other"):
        made.accepted(worker, request(name), 0)
    assert made.placed_by_others == 1


def test_a_withdrawn_or_repeated_request_is_not_another_process_placement() -> None:
    made, [worker] = dispatcher("doubleq", workers=("a",))
    made.dispatch(request("withdrawn"), 0)
    made.withdrawn("withdrawn", 1)
    made.accepted(worker, request("withdrawn"), 0)
    made.dispatch(request("running"), 0)
    made.accepted(worker, request("running"), 0)
    for _ in range(2):
        again = made.attached(worker.identity, (), 0)
        for name in ("withdrawn", "running"):
            made.accepted(again, request(name), 0)
    assert made.placed_by_others == 0
    made.check_invariants()


def test_a_request_that_another_process_placed_is_not_placed_again() -> None:
    made, [worker] = dispatcher("doubleq", workers=("a",))
    made.accepted(worker, request("other"), 0)
    again = made.dispatch(request("other"), 0)
    assert again is not None
    assert (again.member, again.matched_tokens, again.expected) == (worker, 0, False)
    assert worker.outstanding == 1


def test_requests_without_a_stream_are_withdrawn_together() -> None:
    made, [worker] = dispatcher("doubleq", workers=("a",))
    made.dispatch(request("without"), 0)
    made.dispatch(request("of another stream"), 0, source=1)
    made.gone(0)
    assert worker.outstanding == 1
    made.check_invariants()


def test_a_worker_attaches_with_the_blocks_that_it_caches() -> None:
    made, _ = dispatcher("doubleq", workers=())
    made.attached(identity("a"), runs([(7, 0)]), 0)
    assignment = made.dispatch(request("1", prompt_tokens=20, digests=pack_digests([7])), 0)
    assert assignment is not None
    assert assignment.matched_tokens == 16


def test_matched_blocks_are_of_the_size_of_the_worker_that_holds_them() -> None:
    made, _ = dispatcher("doubleq", workers=())
    made.attached(identity("a"), runs([(7, 0)]), 0)
    made.attached(replace(identity("b"), block_tokens=64), (), 0)
    assignment = made.dispatch(request("1", prompt_tokens=100, digests=pack_digests([7])), 0)
    assert assignment is not None
    assert (assignment.member.identity.worker, assignment.matched_tokens) == ("a", 16)

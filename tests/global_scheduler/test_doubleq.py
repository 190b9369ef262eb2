"""DoubleQ within a dispatcher against Algorithm 2 written out, loops and all, with its two misprints corrected."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet, Member, WorkerLoad
from global_scheduler.core.policies import RoutePolicyConfig
from global_scheduler.core.policies.doubleq import KEPT_TOKENS, DoubleQ
from serving.blocks import pack_digests, runs
from serving.cost import MICRO, Normalized, Profiled
from tests.global_scheduler.driving import CONFIG, QUANTUM, dispatcher, identity, placed, request

CLIENTS, WORKERS = "xyz", "abcd"
CAPACITY = {"a": 10, "b": 10, "c": 20, "d": 10}
MODELS = "mn"
SERVED = {"a": "m", "b": "mn", "c": "m", "d": "n"}  # at first
# Chains with shared beginnings: a digest is its whole prefix, as in the real block chain.
CHAINS = st.lists(st.integers(0, 1), max_size=4).map(
    lambda path: tuple(int("1" + "".join(map(str, path[: n + 1])), 2) for n in range(len(path)))
)


def chain_of(model: str, chain: tuple[int, ...]) -> tuple[int, ...]:
    """The same tokens, as `model` knows them."""
    return tuple(digest + (MODELS.index(model) << 8) for digest in chain)


class NaiveWorker:
    """One attachment. `q` by client and model: what is absent has never been used and is a full quantum."""

    def __init__(self, member: Member, models: str) -> None:
        self.member = member
        self.models = models
        self.q: dict[tuple[str, str], int] = {}
        self.s = 0
        self.held: set[int] = set()
        self.expected: list[tuple[int, ...]] = []
        self.draining = False
        self.waiting = 0

    def matches(self, chain: tuple[int, ...]) -> int:
        known = self.held.union(*self.expected)
        return next((n for n, digest in enumerate(chain) if digest not in known), len(chain))


class DispatchMachine(RuleBasedStateMachine):
    """Requests of three clients for two models, of which a worker may serve both; workers drain, are excluded, die and
    come back, with other models perhaps; gateways die."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = DoubleQ(CONFIG)
        self.dispatcher = Dispatcher(self.policy, BlockIndex(1000), Fleet(stall_timeout=5))
        self.workers: dict[str, NaiveWorker] = {}
        for name in WORKERS:
            self.joins(name, SERVED[name])
        # Request -> client and model, worker, input tokens, chain if placed here, the asking gateway until a worker
        # confirms.
        self.running: dict[str, tuple[tuple[str, str], str, int, tuple[int, ...] | None, int]] = {}
        self.count = 0

    def joins(self, name: str, models: str) -> None:
        who = identity(name, *models, max_running=CAPACITY[name])
        self.workers[name] = NaiveWorker(self.dispatcher.attached(who, (), now=0), models)

    def pool(self, model: str) -> dict[str, NaiveWorker]:
        return {name: worker for name, worker in sorted(self.workers.items()) if model in worker.models}

    def name(self) -> str:
        self.count += 1
        return str(self.count)

    @rule(
        client=st.sampled_from(CLIENTS),
        model=st.sampled_from("mmmn"),
        tokens=st.integers(1, 250),
        chain=CHAINS,
        excluded=st.sampled_from(["", "", "a", "ab"]),
        source=st.integers(1, 2),
    )
    def arrived(self, client: str, model: str, tokens: int, chain: tuple[int, ...], excluded: str, source: int) -> None:
        account, chain = (client, model), chain_of(model, chain)
        candidates = {n: w for n, w in self.pool(model).items() if not w.draining and n not in excluded}
        asked = request(
            self.name(),
            client=client,
            model=model,
            prompt_tokens=tokens,
            digests=pack_digests(chain),
            excluded=tuple(excluded),
        )
        assignment = self.dispatcher.dispatch(asked, 0, source)
        if not candidates:
            assert assignment is None
            return
        expected = self.select(account, chain, candidates)
        worker = self.workers[expected]
        assert placed(assignment) == expected
        assert assignment is not None
        assert assignment.matched_tokens == 16 * worker.matches(chain)
        worker.q[account] = worker.q.get(account, QUANTUM) - tokens
        worker.s += 1
        worker.expected.append(chain)
        self.running[asked.request_id] = (account, expected, tokens, chain, source)

    def select(self, account: tuple[str, str], chain: tuple[int, ...], candidates: dict[str, NaiveWorker]) -> str:
        """SELECTWORKER."""
        longest = max(worker.matches(chain) for worker in candidates.values())
        self.replenish(account, candidates)
        available = [name for name, worker in candidates.items() if worker.q.get(account, QUANTUM) > 0]
        sticky = [name for name in available if candidates[name].matches(chain) == longest]
        chosen, shortest = min(sticky or available, key=self.order), min(available, key=self.order)
        length, other = self.workers[chosen].s, self.workers[shortest].s
        queues = self.workers[chosen].waiting or length >= CAPACITY[chosen]
        if queues and Fraction(length, CAPACITY[chosen]) > Fraction(3, 2) * Fraction(other + 1, CAPACITY[shortest]):
            return shortest
        return chosen

    def replenish(self, account: tuple[str, str], candidates: dict[str, NaiveWorker]) -> None:
        """Lines 4 to 6."""
        while not any(worker.q.get(account, QUANTUM) > 0 for worker in candidates.values()):
            for worker in self.pool(account[1]).values():
                if worker.q.get(account, QUANTUM) <= 0:
                    worker.q[account] += QUANTUM

    def order(self, name: str) -> tuple[Fraction, int]:
        worker = self.workers[name]
        return Fraction(worker.s, CAPACITY[name]), worker.member.slot

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 1000), output=st.integers(0, 200))
    def ended(self, pick: int, output: int) -> None:
        name = sorted(self.running)[pick % len(self.running)]
        account, at, _, chain, _ = self.running.pop(name)
        worker = self.workers[at]
        self.dispatcher.accepted(worker.member, request(name, client=account[0], model=account[1]), 0)
        self.dispatcher.ended(worker.member, name, 1, True, output)
        worker.s -= 1
        worker.q[account] -= 2 * output
        if chain is not None:
            worker.expected.remove(chain)
            if output:
                worker.held |= set(chain)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 1000), told=st.booleans())
    def never_started(self, pick: int, told: bool) -> None:
        """The worker says so, or the gateway, which does not know whether the worker has it."""
        name = sorted(self.running)[pick % len(self.running)]
        _, at, _, _, source = self.running[name]
        if told:
            self.dispatcher.ended(self.workers[at].member, name, 1, False, 0)
        else:
            self.dispatcher.withdrawn(name, 1)
        if told or source:
            self.undone(name)

    def undone(self, name: str) -> None:
        account, at, tokens, chain, _ = self.running.pop(name)
        worker = self.workers[at]
        worker.s -= 1
        worker.q[account] = min(QUANTUM, worker.q[account] + max(0, tokens - KEPT_TOKENS))
        if chain is not None:
            worker.expected.remove(chain)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 1000))
    def accepted(self, pick: int) -> None:
        name = sorted(self.running)[pick % len(self.running)]
        (client, model), at, tokens, chain, _ = self.running[name]
        self.dispatcher.accepted(self.workers[at].member, request(name, client=client, model=model), 0)
        self.running[name] = ((client, model), at, tokens, chain, 0)

    @rule(source=st.integers(1, 2))
    def a_gateway_died(self, source: int) -> None:
        self.dispatcher.gone(source)
        for name in [name for name, entry in self.running.items() if entry[4] == source]:
            self.undone(name)

    @rule(
        at=st.sampled_from(WORKERS), pick=st.integers(0, 1), client=st.sampled_from(CLIENTS), tokens=st.integers(1, 250)
    )
    def placed_by_somebody_else(self, at: str, pick: int, client: str, tokens: int) -> None:
        """A gateway that was alone, or a scheduler that this one stands by for."""
        worker, name = self.workers[at], self.name()
        account = client, worker.models[pick % len(worker.models)]
        asked = request(name, client=client, model=account[1], prompt_tokens=tokens)
        self.dispatcher.accepted(worker.member, asked, 0)
        self.replenish(account, {n: w for n, w in self.pool(account[1]).items() if n == at or not w.draining})
        worker.q[account] = worker.q.get(account, QUANTUM) - tokens
        worker.s += 1
        self.running[name] = (account, at, tokens, None, 0)

    @rule(at=st.sampled_from(WORKERS), turns=st.booleans(), waiting=st.integers(0, 2))
    def reports(self, at: str, turns: bool, waiting: int) -> None:
        """It may drain, or return; requests may wait there."""
        worker = self.workers[at]
        worker.draining, worker.waiting = worker.draining != turns, waiting
        self.dispatcher.reported(worker.member, WorkerLoad(draining=worker.draining, waiting=waiting), 0)

    @rule(at=st.sampled_from(WORKERS), models=st.sampled_from(["m", "n", "mn"]))
    def dies_and_comes_back(self, at: str, models: str) -> None:
        self.dispatcher.lost(self.workers[at].member)
        self.joins(at, models)
        self.running = {name: entry for name, entry in self.running.items() if entry[1] != at}

    @rule(at=st.sampled_from(WORKERS), pick=st.integers(0, 1), chain=CHAINS)
    def cached(self, at: str, pick: int, chain: tuple[int, ...]) -> None:
        worker = self.workers[at]
        chain = chain_of(worker.models[pick % len(worker.models)], chain)
        worker.held |= set(chain)
        self.dispatcher.progressed(worker.member, runs(zip(chain, (0, *chain), strict=False)), b"")

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(pick=st.integers(0, 99))
    def evicted(self, pick: int) -> None:
        names = sorted(name for name, worker in self.workers.items() if worker.held)
        worker = self.workers[names[pick % len(names)]]
        leaf = max(worker.held)  # longer paths are larger numbers
        worker.held.remove(leaf)
        self.dispatcher.progressed(worker.member, (), pack_digests([leaf]))

    @invariant()
    def accounts_agree(self) -> None:
        self.dispatcher.check_invariants()
        for name, worker in self.workers.items():
            assert worker.member.outstanding == worker.s, name
            for account in product(CLIENTS, MODELS):
                balance = self.policy.balance(*account, worker.member.slot)
                assert balance == worker.q.get(account, QUANTUM) * MICRO, (name, account)


TestDispatch = DispatchMachine.TestCase
TestDispatch.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


def test_a_prefix_sticks_to_its_worker_until_the_quantum_is_spent() -> None:
    made, _ = dispatcher()
    prompt = {"prompt_tokens": 40, "digests": pack_digests([7])}
    placements = [placed(made.dispatch(request(str(n), **prompt), 0)) for n in range(4)]
    assert placements == ["a", "a", "a", "b"]


def test_a_prefix_is_left_where_requests_wait_for_it_beside_idle_workers() -> None:
    prompt = {"prompt_tokens": 4, "digests": pack_digests([7])}
    placements = {}
    for strict in (False, True):
        made, (a, _) = dispatcher(config=replace(CONFIG, strict_paper=strict))
        first = [placed(made.dispatch(request(str(n), client=str(n), **prompt), 0)) for n in range(3)]
        made.reported(a, WorkerLoad(waiting=1), 0)
        then = [placed(made.dispatch(request(str(n), client=str(n), **prompt), 0)) for n in range(3, 6)]
        placements[strict] = first + then
    assert placements == {False: list("aaabbb"), True: list("aaaaaa")}


def test_a_prompt_that_was_aborted_before_its_first_token_is_held_nowhere() -> None:
    made, (a, _) = dispatcher()
    prompt = {"prompt_tokens": 20, "digests": pack_digests([7])}
    for name, output_tokens, matched_then in (("aborted", 0, 0), ("answered", 1, 16)):
        assert placed(made.dispatch(request(name, excluded=("b",), **prompt), 0)) == "a"
        made.ended(a, name, 1, True, output_tokens)
        probe = made.dispatch(request(f"after {name}", excluded=("b",), **prompt), 0)
        assert probe is not None
        assert probe.matched_tokens == matched_then
        made.withdrawn(f"after {name}", 1)


def test_models_have_separate_accounts() -> None:
    made, _ = dispatcher(workers=("a",))
    other = made.attached(identity("n1", "n"), (), 0)
    made.dispatch(request("1", prompt_tokens=1000), 0)
    assert placed(made.dispatch(request("2", model="n"), 0)) == other.identity.worker
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 1000) * MICRO
    assert policy.balance("ann", "n", other.slot) == (QUANTUM - 10) * MICRO


def test_a_weight_divides_what_is_charged() -> None:
    made, _ = dispatcher(workers=("a",))
    made.dispatch(request("1", prompt_tokens=60, weight=2000), 0)
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 30) * MICRO


def test_output_is_charged_from_its_first_token_on() -> None:
    config = RoutePolicyConfig(10_000, Profiled())
    made, [worker] = dispatcher(workers=("a",), config=config)
    made.dispatch(request("1", prompt_tokens=10), 0)
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    before = policy.balance("ann", "m", 0)
    made.ended(worker, "1", 1, started=True, output_tokens=5)
    assert before - policy.balance("ann", "m", 0) == Profiled().decode(5, 10, 0)


def test_submitting_and_cancelling_is_not_free() -> None:
    made, _ = dispatcher(workers=("a",))
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    for number in range(3):
        made.dispatch(request(str(number), prompt_tokens=90), 0)
        made.withdrawn(str(number), 1)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 3 * KEPT_TOKENS) * MICRO


def test_prompts_cost_what_they_would_without_a_system_prompt() -> None:
    """The scheduler does not know which tokens are the system prompt; of a cancelled call some tokens stay charged."""
    cost = Normalized(3, 1, 1)
    made, _ = dispatcher(workers=("a",), config=RoutePolicyConfig(10_000, cost))
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    for number, tokens in enumerate((90, KEPT_TOKENS // 2)):
        before = policy.balance("ann", "m", 0)
        made.dispatch(request(str(number), prompt_tokens=tokens), 0)
        assert before - policy.balance("ann", "m", 0) == cost.extend(tokens, 0)
        made.withdrawn(str(number), 1)
        assert before - policy.balance("ann", "m", 0) == cost.extend(min(KEPT_TOKENS, tokens), 0)


def test_a_worker_that_was_away_does_not_hoard_credit() -> None:
    made, (a, b) = dispatcher()
    policy = made.policy
    assert isinstance(policy, DoubleQ)
    made.dispatch(request("0", prompt_tokens=150, excluded=("b",)), 0)
    for number in range(1, 20):
        made.dispatch(request(str(number), prompt_tokens=100, excluded=("a",)), 0)
    assert 0 < policy.balance("ann", "m", a.slot) <= QUANTUM * MICRO
    assert policy.balance("ann", "m", b.slot) <= QUANTUM * MICRO


def test_requests_that_another_process_placed_are_counted() -> None:
    made, [worker] = dispatcher(workers=("a",))
    made.dispatch(request("own"), 0)
    for name in ("own", "other"):
        made.accepted(worker, request(name), 0)
    assert made.placed_by_others == 1


def test_a_request_that_another_process_placed_is_not_placed_again() -> None:
    made, [worker] = dispatcher(workers=("a",))
    made.accepted(worker, request("other"), 0)
    again = made.dispatch(request("other"), 0)
    assert again is not None
    assert (again.member, again.matched_tokens, again.expected) == (worker, 0, False)
    assert worker.outstanding == 1


def test_requests_without_a_stream_are_withdrawn_together() -> None:
    made, [worker] = dispatcher(workers=("a",))
    made.dispatch(request("without"), 0)
    made.dispatch(request("of another stream"), 0, source=1)
    made.gone(0)
    assert worker.outstanding == 1
    made.check_invariants()

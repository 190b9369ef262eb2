"""A dispatcher driven at random beside naive workers; a policy's test adds the policy and its accounts written out."""

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet, Member, WorkerLoad
from global_scheduler.core.policies import RoutePolicy, RouteRequest
from serving.blocks import pack_digests, runs
from tests.unit.global_scheduler.driving import identity, placed, request

CLIENTS, WORKERS = ("x", "t/y", "t/z"), "abcd"
CAPACITY = {"a": 10, "b": 10, "c": 20, "d": 10}
MODELS = "mn"
SERVED = {"a": "m", "b": "mn", "c": "m", "d": "n"}  # at first
WEIGHTS = st.sampled_from([1000, 1000, 3000, 500])
# Chains with shared beginnings: a digest is its whole prefix, as in the real block chain.
CHAINS = st.binary(max_size=4).map(
    lambda path: tuple(int("1" + "".join(str(byte % 2) for byte in path[: n + 1]), 2) for n in range(len(path)))
)
Chain = tuple[int, ...]


def chain_of(model: str, chain: Chain) -> Chain:
    """The same tokens, as `model` knows them."""
    return tuple(digest + (MODELS.index(model) << 8) for digest in chain)


class NaiveWorker:
    """One attachment: what it holds, what is on its way there, and how many requests it has."""

    def __init__(self, member: Member, models: str) -> None:
        self.member = member
        self.models = models
        self.s = 0
        self.held: set[int] = set()
        self.expected: list[Chain] = []
        self.draining = False
        self.waiting = 0

    def matches(self, chain: Chain) -> int:
        known = self.held.union(*self.expected)
        return next((n for n, digest in enumerate(chain) if digest not in known), len(chain))


@dataclass
class Running:
    """A request that is placed: where, its chain if it was placed here, the asking gateway until a worker confirms."""

    request: RouteRequest
    at: str
    chain: Chain | None
    source: int
    is_computed: bool = False


class DispatchMachine(RuleBasedStateMachine):
    """Requests of three clients for two models, of which a worker may serve both; workers drain, are excluded, die and
    come back, with other models perhaps; gateways die."""

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher(self.make_policy(), BlockIndex(1000), Fleet(stall_timeout=5))
        self.workers: dict[str, NaiveWorker] = {}
        self.running: dict[str, Running] = {}
        self.count = 0
        for name in WORKERS:
            self.joins(name, SERVED[name])

    def make_policy(self) -> RoutePolicy:
        raise NotImplementedError

    def select(self, asked: RouteRequest, chain: Chain, candidates: dict[str, NaiveWorker]) -> str:
        """The candidate that the policy must choose."""
        raise NotImplementedError

    def booked(self, asked: RouteRequest, at: str, candidates: dict[str, NaiveWorker], matched: int) -> None:
        """A request was placed `at`, whoever placed it."""
        raise NotImplementedError

    def prompt_computed(self, running: Running) -> None:
        """A worker has computed a prompt for the first time."""

    def settled(self, running: Running, output: int) -> None:
        """A request that had started ended."""
        raise NotImplementedError

    def undone(self, running: Running) -> None:
        """A request ended before it started."""
        raise NotImplementedError

    def lost(self, at: str) -> None:
        """A worker is gone."""
        raise NotImplementedError

    def joins(self, name: str, models: str) -> None:
        who = identity(name, *models, max_running=CAPACITY[name])
        self.workers[name] = NaiveWorker(self.dispatcher.attached(who, (), now=0), models)

    def pool(self, model: str) -> dict[str, NaiveWorker]:
        return {name: worker for name, worker in sorted(self.workers.items()) if model in worker.models}

    def name(self) -> str:
        self.count += 1
        return str(self.count)

    def order(self, name: str) -> tuple[Fraction, int]:
        """By queue over capacity, then by slot."""
        worker = self.workers[name]
        return Fraction(worker.s, CAPACITY[name]), worker.member.slot

    @rule(
        client=st.sampled_from(CLIENTS),
        model=st.sampled_from("mmmn"),
        tokens=st.integers(1, 250),
        weight=WEIGHTS,
        chain=CHAINS,
        excluded=st.sampled_from(["", "", "a", "ab"]),
        source=st.integers(1, 2),
    )
    def arrived(
        self, client: str, model: str, tokens: int, weight: int, chain: Chain, excluded: str, source: int
    ) -> None:
        chain = chain_of(model, chain)
        candidates = {n: w for n, w in self.pool(model).items() if not w.draining and n not in excluded}
        asked = request(
            self.name(),
            client=client,
            model=model,
            prompt_tokens=tokens,
            weight=weight,
            digests=pack_digests(chain),
            excluded=tuple(excluded),
        )
        assignment = self.dispatcher.dispatch(asked, 0, source)
        if not candidates:
            assert assignment is None
            return
        expected = self.select(asked, chain, candidates)
        worker = self.workers[expected]
        assert placed(assignment) == expected
        assert assignment is not None
        assert assignment.matched_tokens == 16 * worker.matches(chain)
        self.booked(asked, expected, candidates, assignment.matched_tokens)
        worker.s += 1
        worker.expected.append(chain)
        self.running[asked.request_id] = Running(asked, expected, chain, source)

    def pick(self, number: int) -> str:
        return sorted(self.running)[number % len(self.running)]

    def take(self, name: str) -> Running:
        running = self.running.pop(name)
        worker = self.workers[running.at]
        worker.s -= 1
        if running.chain is not None:
            worker.expected.remove(running.chain)
        return running

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 1000), output=st.integers(0, 200))
    def ended(self, number: int, output: int) -> None:
        name = self.pick(number)
        running = self.take(name)
        worker = self.workers[running.at]
        self.dispatcher.accepted(worker.member, running.request, 0)
        self.dispatcher.ended(worker.member, name, 1, True, output)
        if output:
            worker.held |= set(running.chain or ())
        self.settled(running, output)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 1000), told=st.booleans())
    def never_started(self, number: int, told: bool) -> None:
        """The worker says so, or the gateway, which does not know whether the worker has it."""
        name = self.pick(number)
        running = self.running[name]
        if told:
            self.dispatcher.ended(self.workers[running.at].member, name, 1, False, 0)
        else:
            self.dispatcher.withdrawn(name, 1)
        if told or running.source:
            self.undone(self.take(name))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 1000))
    def accepted(self, number: int) -> None:
        running = self.running[self.pick(number)]
        self.dispatcher.accepted(self.workers[running.at].member, running.request, 0, cached_tokens=16)
        running.source = 0

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 1000), by=st.sampled_from(WORKERS))
    def computed(self, number: int, by: str) -> None:
        """A worker says so, again perhaps, or one to which the request does not belong."""
        name = self.pick(number)
        running = self.running[name]
        if by == running.at and not running.is_computed:
            running.is_computed = True
            self.prompt_computed(running)
        self.dispatcher.computed(self.workers[by].member, name, 1)

    @rule(source=st.integers(1, 2))
    def a_gateway_died(self, source: int) -> None:
        self.dispatcher.gone(source)
        for name in [name for name, running in self.running.items() if running.source == source]:
            self.undone(self.take(name))

    @rule(
        at=st.sampled_from(WORKERS),
        number=st.integers(0, 1),
        client=st.sampled_from(CLIENTS),
        tokens=st.integers(1, 250),
        cached=st.sampled_from([0, 0, 16, 64]),
    )
    def placed_by_somebody_else(self, at: str, number: int, client: str, tokens: int, cached: int) -> None:
        """A gateway that was alone, or a scheduler that this one stands by for."""
        worker, name = self.workers[at], self.name()
        model = worker.models[number % len(worker.models)]
        asked = request(name, client=client, model=model, prompt_tokens=tokens)
        self.dispatcher.accepted(worker.member, asked, 0, cached)
        self.booked(asked, at, {n: w for n, w in self.pool(model).items() if n == at or not w.draining}, cached)
        worker.s += 1
        self.running[name] = Running(asked, at, None, 0)

    @rule(at=st.sampled_from(WORKERS), turns=st.booleans(), waiting=st.integers(0, 2))
    def reports(self, at: str, turns: bool, waiting: int) -> None:
        """It may drain, or return; requests may wait there."""
        worker = self.workers[at]
        worker.draining, worker.waiting = worker.draining != turns, waiting
        self.dispatcher.reported(worker.member, WorkerLoad(draining=worker.draining, waiting=waiting), 0)

    @rule(at=st.sampled_from(WORKERS), models=st.sampled_from(["m", "n", "mn"]))
    def dies_and_comes_back(self, at: str, models: str) -> None:
        self.dispatcher.lost(self.workers[at].member)
        self.lost(at)
        self.joins(at, models)
        self.running = {name: running for name, running in self.running.items() if running.at != at}

    @rule(at=st.sampled_from(WORKERS), number=st.integers(0, 1), chain=CHAINS)
    def cached(self, at: str, number: int, chain: Chain) -> None:
        worker = self.workers[at]
        chain = chain_of(worker.models[number % len(worker.models)], chain)
        worker.held |= set(chain)
        self.dispatcher.progressed(worker.member, runs(zip(chain, (0, *chain), strict=False)), b"")

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(number=st.integers(0, 99))
    def evicted(self, number: int) -> None:
        names = sorted(name for name, worker in self.workers.items() if worker.held)
        worker = self.workers[names[number % len(names)]]
        leaf = max(worker.held)  # longer paths are larger numbers
        worker.held.remove(leaf)
        self.dispatcher.progressed(worker.member, (), pack_digests([leaf]))

    @invariant()
    def queues_agree(self) -> None:
        self.dispatcher.check_invariants()
        for name, worker in self.workers.items():
            assert worker.member.outstanding == worker.s, name

"""Which workers may take a request, where a worker may serve several models."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from global_scheduler.core.fleet import Fleet, Member, WorkerLoad
from global_scheduler.core.overload import QUEUE_SECONDS
from tests.unit.global_scheduler.driving import STALL, dispatcher, identity, placed, request

MODELS = ("m", "n", "o")
NAMES = st.sampled_from("abcde")
SERVED = st.frozensets(st.sampled_from(MODELS), min_size=1)
STEP_TIMEOUT = 30.0
LOADS = st.builds(
    WorkerLoad,
    waiting=st.integers(0, 1),
    draining=st.booleans(),
    stalled_seconds=st.sampled_from([0.0, STEP_TIMEOUT, STEP_TIMEOUT + 1]),
)


@dataclass
class NaiveWorker:
    """One attachment."""

    member: Member
    models: frozenset[str]
    reported_at: float
    load: WorkerLoad = field(default_factory=WorkerLoad)

    def is_fresh(self, now: float) -> bool:
        return now - self.reported_at <= STALL

    def is_live(self, now: float) -> bool:
        return self.is_fresh(now) and self.load.stalled_seconds <= STEP_TIMEOUT

    def takes(self, model: str, excluded: frozenset[str], now: float) -> bool:
        usable = self.is_live(now) and not self.load.draining
        return usable and model in self.models and self.member.identity.instance not in excluded


class Fleets(RuleBasedStateMachine):
    """Workers of any models come, report, fall silent and go."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(STALL, STEP_TIMEOUT)
        self.workers: dict[str, NaiveWorker] = {}
        self.now = 1000.0
        self.instances = 0

    @rule(name=NAMES, models=SERVED)
    def attaches(self, name: str, models: frozenset[str]) -> None:
        if name in self.workers:
            self.fleet.remove(self.workers.pop(name).member)
        self.instances += 1
        who = identity(name, *sorted(models), instance=f"{name}{self.instances}")
        self.workers[name] = NaiveWorker(self.fleet.attach(who, self.now), models, self.now)

    @precondition(lambda self: self.workers)
    @rule(number=st.integers(0, 4))
    def leaves(self, number: int) -> None:
        self.fleet.remove(self.workers.pop(self.attached(number)).member)

    @precondition(lambda self: self.workers)
    @rule(number=st.integers(0, 4), load=LOADS)
    def reports(self, number: int, load: WorkerLoad) -> None:
        worker = self.workers[self.attached(number)]
        worker.load, worker.reported_at = load, self.now
        self.fleet.reported(worker.member, load, self.now)

    def attached(self, number: int) -> str:
        names = sorted(self.workers)
        return names[number % len(names)]

    @rule(seconds=st.sampled_from([0.5, STALL, STALL + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(model=st.sampled_from([*MODELS, "nobody's"]), names=st.frozensets(NAMES))
    def a_request_comes(self, model: str, names: frozenset[str]) -> None:
        excluded = frozenset(self.workers[name].member.identity.instance for name in names if name in self.workers)
        expected = [worker for worker in self.workers.values() if worker.takes(model, excluded, self.now)]
        candidates = self.fleet.candidates(model, excluded, self.now)
        assert candidates == sum(1 << worker.member.slot for worker in expected)

    @rule()
    def the_live_are_listed(self) -> None:
        live = [worker.member for worker in self.workers.values() if worker.is_live(self.now)]
        assert self.fleet.live(self.now) == sorted(live, key=lambda member: member.slot)

    @rule()
    def the_stale_are_listed(self) -> None:
        stale = [worker.member for worker in self.workers.values() if not worker.is_fresh(self.now)]
        assert self.fleet.stale(self.now) == sorted(stale, key=lambda member: member.slot)

    @invariant()
    def is_sound(self) -> None:
        self.fleet.check_invariants()
        waiting = [worker.member for worker in self.workers.values() if worker.load.waiting]
        assert self.fleet.waiting == sum(1 << member.slot for member in waiting)


TestFleets = Fleets.TestCase
TestFleets.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def one_silent() -> tuple[Fleet, Member, Member]:
    """Two workers that attach at 0; only the first reports again, at 1."""
    fleet = Fleet(STALL, STEP_TIMEOUT)
    talking, silent = (fleet.attach(identity(name, "m"), 0) for name in "ab")
    fleet.reported(talking, WorkerLoad(), 1)
    return fleet, talking, silent


def test_a_worker_is_stale_when_more_than_the_time_has_passed_since_its_report() -> None:
    fleet, talking, silent = one_silent()
    assert fleet.live(STALL) == [talking, silent]
    assert fleet.live(STALL + 1) == [talking]
    fleet, talking, silent = one_silent()
    assert fleet.stale(STALL) == []
    assert fleet.stale(STALL + 1) == [silent]
    fleet, talking, silent = one_silent()
    assert fleet.candidates("m", (), STALL) == 1 << talking.slot | 1 << silent.slot
    assert fleet.candidates("m", (), STALL + 1) == 1 << talking.slot


def test_a_worker_of_two_models_has_one_queue_for_both() -> None:
    made, _ = dispatcher("least-loaded", ())
    for name, models in (("both", "mn"), ("one", "n")):
        made.attached(identity(name, *models), (), 0)
    of_m = [placed(made.dispatch(request(f"m{number}"), 0)) for number in range(3)]
    assert of_m == ["both"] * 3
    of_n = [placed(made.dispatch(request(f"n{number}", model="n"), 0)) for number in range(4)]
    assert of_n == ["one", "one", "one", "both"], "requests of the other model count"


def test_a_pressed_worker_counts_in_the_pool_of_each_of_its_models() -> None:
    made, _ = dispatcher(workers=())
    shared, other = made.attached(identity("both", "m", "n"), (), 0), made.attached(identity("one", "o"), (), 0)
    made.reported(shared, WorkerLoad(queue_seconds=QUEUE_SECONDS), 0)
    assert made.overloaded(0) == {"m": True, "n": True, "o": False}
    made.reported(other, WorkerLoad(queue_seconds=QUEUE_SECONDS), 0)
    made.lost(shared)
    assert made.overloaded(0) == {"o": True}


def test_requests_of_unknown_callers_count_in_the_queue_once() -> None:
    fleet, talking, _ = one_silent()
    fleet.booked(talking, 2)
    for others in (3, 5, 1):
        fleet.set_foreign_requests(talking, others)
        assert fleet.queues.length(talking.slot) == 2 + others


def test_background_requests_count_in_the_queues_of_background_requests_alone() -> None:
    made, (a, b) = dispatcher("least-loaded")
    lower = [request(f"lower {number}", background=True, excluded=("b",)) for number in range(2)]
    for each in lower:
        assert placed(made.dispatch(each, 0)) == "a"
    assert placed(made.dispatch(request("upper"), 0)) == "a", "as if it was empty"
    assert placed(made.dispatch(request("next"), 0)) == "b"
    assert (a.outstanding, a.background, b.outstanding, b.background) == (3, 2, 1, 0)
    assert placed(made.dispatch(request("lower 2", background=True), 0)) == "b"
    for each in lower:
        made.ended(a, each.request_id, 1, started=True, output_tokens=1)
    assert placed(made.dispatch(request("lower 3", background=True), 0)) == "a"
    made.check_invariants()


def test_requests_of_unknown_callers_count_in_both_queues() -> None:
    fleet = Fleet(STALL)
    members = [fleet.attach(identity(name), 0.0) for name in "ab"]
    fleet.set_foreign_requests(members[0], 2)
    for table in (fleet.queues, fleet.all_queues):
        assert [table.length(member.slot) for member in members] == [2, 0]
    fleet.remove(members[0])
    fleet.attach(identity("c"), 0.0)
    assert [table.length(members[0].slot) for table in (fleet.queues, fleet.all_queues)] == [0, 0]

"""What long runs and divided schedulers stand on (lab.bench.scaling)."""

import gc
from collections.abc import Callable
from functools import cache

import pytest

from global_scheduler.core.dispatcher import Dispatcher
from lab.bench.scaling.conversations import Conversations
from lab.bench.scaling.divided import KINDS
from lab.bench.scaling.flood import Flood
from lab.bench.scaling.gaps import USERS, small_pool
from lab.bench.scaling.measure import POOL, Figures, measure
from lab.bench.scaling.tally import PoolGap, Tally
from lab.bench.scaling.users import STAYING, pass_by
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.run_log import RunLog
from simulation.scheduler import make_dispatcher
from simulation.spec import ClusterSpec

pytestmark = pytest.mark.slow

WORKERS, CALLS = 8, 12
CONVERSATIONS = Conversations(WORKERS, CALLS, users=20)
EXPECTED = WORKERS * CALLS


def calls_alive() -> int:
    gc.collect()
    return sum(type(each) is SimulatedCall for each in gc.get_objects())


@pytest.mark.parametrize(("journal", "left"), [(Tally(EXPECTED), 0), (RunLog(), EXPECTED)])
def test_a_tally_keeps_no_call_that_has_ended(journal: RunLog, left: int) -> None:
    cluster = SimulatedCluster(ClusterSpec(workers=WORKERS), CONVERSATIONS.make(), journal)
    before = calls_alive()
    cluster.run()
    assert calls_alive() - before == left


def test_a_tally_sums_up_what_a_journal_keeps() -> None:
    spec, tally = ClusterSpec(workers=WORKERS), Tally(EXPECTED)
    calls = SimulatedCluster(spec, CONVERSATIONS.make()).run().calls
    SimulatedCluster(spec, CONVERSATIONS.make(), tally).run()
    assert tally.ended_calls == len(calls) == EXPECTED
    assert tally.cached_tokens == sum(call.cached_tokens for call in calls)
    assert tally.by_worker == {name: sum(c.worker == name for c in calls) for name in {c.worker for c in calls}}
    assert tally.wait(100) == pytest.approx(max(call.first_token_latency for call in calls), abs=0.001)


def test_cycles_are_collected_again_after_a_run() -> None:
    assert gc.isenabled()
    SimulatedCluster(ClusterSpec(workers=WORKERS), CONVERSATIONS.make()).run()
    assert gc.isenabled()


@pytest.mark.parametrize("kind", KINDS)
def test_divided_schedulers_lose_no_call(kind: str) -> None:
    assert figures(kind).calls == EXPECTED


def test_as_many_cells_as_workers_leave_nothing_to_choose_below() -> None:
    """The upper level then is the one scheduler, but for what it does not hear of caches."""
    assert figures("8 cells").hit_rate == pytest.approx(figures("one").hit_rate, abs=0.05)


@cache
def figures(kind: str) -> Figures:
    make, count = KINDS[kind]

    def made(spec: ClusterSpec) -> Dispatcher:
        return make(spec, count)

    return measure(POOL, CONVERSATIONS, Tally(EXPECTED), made)


@pytest.mark.parametrize(("policy", "fair"), [("dlpm", True), ("fcfs", False)])
def test_the_gap_over_a_pool_is_seen(policy: str, fair: bool) -> None:
    """The users who send three times as much get three times as much, without a fair policy."""
    gap = flood_gap(policy, make_dispatcher)
    assert (gap < 10_000 * MICRO) == fair


def flood_gap(policy: str, make: Callable[[ClusterSpec], Dispatcher]) -> int:
    tally = PoolGap(300, 2)
    measure(small_pool("doubleq", policy), Flood(2, 300, USERS), tally, make)
    return tally.pool_gap


def test_passers_by_take_nothing_from_the_balance_of_two_who_stay() -> None:
    watched = pass_by(300)
    watched.batcher.check_invariants()
    assert watched.batcher.queue.policy.bound_micro is not None
    assert 0 < watched.gap <= watched.batcher.queue.policy.bound_micro
    assert min(watched.service[name] for name in STAYING) > 0

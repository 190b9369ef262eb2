"""The theorems on DoubleQ over workers with DLPM (DLPM section 5.3, Appendix A.3), in the simulated fleet, and the same
under least delay.

A client is backlogged while it has requests in the queue of every worker (Definition 3.1, design section 4.3).
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.loops import OpenLoop
from local_worker.core.plan import Plan
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.prompts import PromptSegments
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.worker import SimulatedWorker

pytestmark = pytest.mark.slow

QUANTUM = 32
INPUT, OUTPUT = 64, 16
WORKER = WorkerSpec(
    quantum_tokens=QUANTUM,
    kv_tokens=512,
    block_tokens=4,
    max_running=8,
    token_budget=64,
    max_prompt_tokens=INPUT,
    max_output_tokens=OUTPUT,
)
CLIENTS = "fgh"


@dataclass(frozen=True)
class Ask:
    """What one call is: `prefix` names a shared beginning, 0 none."""

    client: str
    prefix: int
    tokens: int
    output: int
    arrival: float = 0.0


ASKS = st.builds(
    Ask,
    client=st.sampled_from(CLIENTS),
    prefix=st.integers(0, 3),
    tokens=st.integers(1, INPUT),
    output=st.integers(1, OUTPUT),
    arrival=st.sampled_from([0.0] * 6 + [0.3, 0.6]),
)


def calls_of(asks: list[Ask]) -> list[SimulatedCall]:
    segments = PromptSegments()
    shared = {prefix: segments.fresh(INPUT) for prefix in range(1, 4)}
    made = []
    for number, ask in enumerate(asks):
        common = shared[ask.prefix][: ask.tokens * 3 // 4] if ask.prefix else []
        prompt = [*common, *segments.fresh(ask.tokens - len(common))]
        made.append(
            SimulatedCall(
                number=number, client=ask.client, prompt=prompt, output_tokens=ask.output, arrival=ask.arrival
            )
        )
    return made


class Observer:
    """Looks after every plan and every step at each client's service, and at who is backlogged."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.gap = dict.fromkeys(((f, g) for f in CLIENTS for g in CLIENTS), 0)
        self._lowest: dict[tuple[str, str], int] = {}
        for worker in cluster.workers.values():
            self._follow(worker)

    def _follow(self, worker: SimulatedWorker) -> None:
        plan = worker.batcher.plan

        def observed(now: float) -> Plan | None:
            planned = plan(now)
            self.observe()
            return planned

        worker.batcher.plan = observed  # type: ignore[method-assign]

    def backlogged(self, client: str) -> bool:
        return all(worker.batcher.queue.accounts.waiting(client) for worker in self.cluster.workers.values())

    def served(self, client: str) -> int:
        return self.cluster.run_log._totals.get(client, 0)

    def observe(self) -> None:
        """`gap[f, g]`: the most that g got more than f in any interval in which f was backlogged."""
        for f, g in self.gap:
            if not self.backlogged(f):
                self._lowest.pop((f, g), None)
                continue
            ahead = self.served(g) - self.served(f)
            lowest = self._lowest[f, g] = min(ahead, self._lowest.get((f, g), ahead))
            self.gap[f, g] = max(self.gap[f, g], ahead - lowest)


class TenantObserver(Observer):
    """Sees tenants as clients: their users' service together, and a tenant as backlogged while any of its users is."""

    def _users(self, tenant: str) -> list[str]:
        return [f"{tenant}/{number}" for number in range(10)]

    def backlogged(self, client: str) -> bool:
        return all(
            any(worker.batcher.queue.accounts.waiting(user) for user in self._users(client))
            for worker in self.cluster.workers.values()
        )

    def served(self, client: str) -> int:
        return sum(self.cluster.run_log._totals.get(user, 0) for user in self._users(client))


def check_balances(worker: SimulatedWorker) -> None:
    """Theorem A.3: what a client got and what its refills were worth differ by its balance, at each worker."""
    policy = worker.batcher.queue.policy
    assert policy.bound_micro is not None
    most = policy.bound_micro // 2 - QUANTUM * MICRO
    for client in CLIENTS:
        balance = policy.balance(client)
        assert -most < balance <= QUANTUM * MICRO, f"{worker.name}, {client}: {balance}, U = {most}"


def bound(cluster: SimulatedCluster) -> int:
    """2 |W| (U + Q^u)."""
    bounds = [worker.batcher.queue.policy.bound_micro for worker in cluster.workers.values()]
    return sum(bound for bound in bounds if bound is not None)


@settings(max_examples=25, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=10, max_size=120),
    workers=st.integers(1, 3),
    route=st.sampled_from(["doubleq", "least-delay", "per-client-round-robin"]),
    route_quantum=st.sampled_from([32, 256]),
)
def test_nobody_who_is_backlogged_falls_further_behind_than_the_bound(
    asks: list[Ask], workers: int, route: str, route_quantum: int
) -> None:
    """Theorems 5.1, 5.2 and A.3; for per-client round robin A.6."""
    spec = ClusterSpec(workers=workers, worker=WORKER, route=route, route_quantum_tokens=route_quantum)
    cluster = SimulatedCluster(spec, OpenLoop(calls_of(asks)))
    observer = Observer(cluster)
    for worker in cluster.workers.values():
        worker.checked = check_balances
    cluster.run()
    assert max(observer.gap.values()) <= bound(cluster)


@settings(max_examples=10, deadline=None)
@given(
    asks=st.lists(st.tuples(ASKS, st.integers(0, 9)), min_size=10, max_size=100),
    workers=st.integers(1, 3),
    route=st.sampled_from(["doubleq", "least-delay"]),
)
def test_tenants_differ_by_no_more_than_the_bound_whatever_users_they_name(
    asks: list[tuple[Ask, int]], workers: int, route: str
) -> None:
    """Theorems 5.1 and 5.2 for tenants; each of them may have ten users."""
    calls = calls_of([replace(ask, client=f"{ask.client}/{user}") for ask, user in asks])
    spec = ClusterSpec(workers=workers, worker=WORKER, route=route, route_quantum_tokens=256)
    cluster = SimulatedCluster(spec, OpenLoop(calls))
    observer = TenantObserver(cluster)
    cluster.run()
    assert max(observer.gap.values()) <= bound(cluster)


def test_without_fair_workers_a_flood_breaks_the_bound() -> None:
    """What the test above would see."""
    asks = [Ask("f", 0, INPUT, OUTPUT)] * 300 + [Ask("g", 0, INPUT, OUTPUT)] * 100
    gaps = {}
    for policy in ("dlpm", "fcfs"):
        cluster = SimulatedCluster(
            ClusterSpec(workers=2, worker=replace(WORKER, policy=policy)), OpenLoop(calls_of(asks))
        )
        observer = Observer(cluster)
        cluster.run()
        gaps[policy] = max(observer.gap.values())
    fair = SimulatedCluster(ClusterSpec(workers=2, worker=WORKER), OpenLoop([]))
    assert gaps["dlpm"] <= bound(fair) < gaps["fcfs"]


@settings(max_examples=25, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=10, max_size=80),
    workers=st.integers(1, 3),
    route=st.sampled_from(["doubleq", "least-delay"]),
)
def test_a_newcomer_waits_for_a_bounded_service_of_others(asks: list[Ask], workers: int, route: str) -> None:
    """Theorem A.4 without the capacity: at the worker where the call waits, each other client gets at most a bound."""
    newcomer = Ask("newcomer", 0, INPUT, 4, arrival=0.2)
    calls = calls_of([*asks, newcomer])
    spec = ClusterSpec(workers=workers, worker=WORKER, route=route, route_quantum_tokens=256)
    cluster = SimulatedCluster(spec, OpenLoop(calls))
    served: list[tuple[str, str, int]] = []  # worker, client, micro-units, as long as the newcomer waits there
    newest = calls[-1]

    def look(worker: SimulatedWorker) -> None:
        waits = newest.worker == worker.name and worker.batcher.queue.accounts.waiting("newcomer")
        if waits:
            for client in CLIENTS:
                accounts = worker.batcher.queue.accounts.of_client(client)
                served.append((worker.name, client, sum(account.service for account in accounts)))

    for worker in cluster.workers.values():
        worker.checked = look
    cluster.run()
    for client in CLIENTS:
        seen = [micro for _, who, micro in served if who == client]
        if seen:
            assert seen[-1] - seen[0] <= bound(cluster) // workers


@pytest.mark.parametrize("calls", [50, 200])
def test_with_an_infinite_quantum_the_gap_grows_without_bound(calls: int) -> None:
    """Theorem A.5: two clients share the prefix that one worker holds, the third has the other worker to itself."""
    gaps = {}
    for route_quantum in (64, 1 << 40):
        spec = ClusterSpec(
            workers=2, worker=WORKER, route="doubleq", route_quantum_tokens=route_quantum, route_strict_paper=True
        )
        cluster = SimulatedCluster(spec, OpenLoop(calls_of(two_share_a_prefix(calls))))
        gaps[route_quantum] = gap_until_one_is_done(cluster)
    assert gaps[64] <= bound(cluster)
    assert gaps[1 << 40] > calls * 20 * MICRO, "in proportion to the time"


def two_share_a_prefix(calls: int) -> list[Ask]:
    return [
        Ask(client, prefix, INPUT, OUTPUT)
        for _ in range(calls)
        for client, prefix in zip("fgh", (1, 1, 2), strict=True)
    ]


def test_least_delay_needs_no_quantum_for_a_gap_that_does_not_grow() -> None:
    """The case of Theorem A.5. Preble's route, over the same fair workers, lets the gap grow."""

    def gap(route: str, calls: int) -> int:
        spec = ClusterSpec(workers=2, worker=WORKER, route=route)
        return gap_until_one_is_done(SimulatedCluster(spec, OpenLoop(calls_of(two_share_a_prefix(calls)))))

    least_delay = max(gap("least-delay", calls) for calls in (100, 400))
    assert least_delay < 500 * MICRO
    assert gap("preble", 400) > 4 * least_delay


@pytest.mark.parametrize("route", ["doubleq", "least-delay", "round-robin"])
def test_no_route_keeps_the_gap_of_a_pool_independent_of_its_workers(route: str) -> None:
    """docs/fairness.md, "What is impossible": g alone fills every batch, then f floods."""
    gaps = []
    for workers in (1, 4):
        asks = [Ask("g", 0, INPUT, OUTPUT)] * 60 * workers
        asks += [Ask("f", 0, INPUT, OUTPUT, arrival=0.02)] * 60 * workers
        cluster = SimulatedCluster(ClusterSpec(workers=workers, worker=WORKER, route=route), OpenLoop(calls_of(asks)))
        observer = Observer(cluster)
        cluster.run()
        gaps.append(observer.gap["f", "g"])
    assert gaps[1] > 3 * gaps[0] > 0


def gap_until_one_is_done(cluster: SimulatedCluster) -> int:
    """Of h over f, at most, while both have requests somewhere; every worker serves somebody all the time."""
    worst = 0

    def look(_: SimulatedWorker) -> None:
        nonlocal worst
        waiting = {c: sum(w.batcher.queue.accounts.waiting(c) for w in cluster.workers.values()) for c in "fh"}
        if all(waiting.values()):
            served = cluster.run_log._totals
            worst = max(worst, abs(served.get("h", 0) - served.get("f", 0)))

    for worker in cluster.workers.values():
        worker.checked = look
    cluster.run()
    return worst

"""Faults of workers and connections, and when other components detect them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from lab.rehearsal.sharing_cluster import SharingCluster
from simulation.cluster import SimulatedCluster
from simulation.worker import SimulatedWorker

DETECTED_SECONDS = 0.05  # until the other end of a stream detects that it broke
SHORTEST_SECONDS = 0.2  # a fault that ends before its detection would have no effect
SLOWDOWN = 10.0


class FaultKind(StrEnum):
    """The kind of a fault, where a partition cuts a worker off from the gateways or from the scheduler."""

    CRASH = "crash"
    STALL = "stall"
    SLOW = "slow"
    GATEWAY_PARTITION = "gateway-partition"
    SCHEDULER_PARTITION = "scheduler-partition"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `kind` at `worker` that begins at second `at` and lasts `seconds`."""

    kind: FaultKind
    worker: str
    at: float
    seconds: float


def draw(rng: random.Random, cluster: SimulatedCluster, count: int, until: float) -> list[Fault]:
    """Draw `count` faults in the first `until` seconds; faults of one worker may overlap."""
    names = list(cluster.workers)
    return [
        Fault(rng.choice(list(FaultKind)), rng.choice(names), rng.uniform(0, until), rng.uniform(SHORTEST_SECONDS, 5.0))
        for _ in range(count)
    ]


def inject(cluster: SimulatedCluster, faults: list[Fault]) -> None:
    """Plan `faults` on the cluster's clock; call this before the run."""
    strike: dict[FaultKind, Callable[[SimulatedCluster, SimulatedWorker, float], None]] = {
        FaultKind.CRASH: _crash,
        FaultKind.STALL: _stall,
        FaultKind.SLOW: _slow,
        FaultKind.GATEWAY_PARTITION: _cut_from_gateway,
        FaultKind.SCHEDULER_PARTITION: _cut_from_scheduler,
    }
    for fault in faults:
        worker = cluster.workers[fault.worker]
        cluster.clock.at(fault.at, lambda f=fault, w=worker: strike[f.kind](cluster, w, f.seconds))  # type: ignore[misc]


def lose_events(cluster: SimulatedCluster, rng: random.Random, share: float) -> None:
    """Drop the given share (0 to 1) of the cache events on their way to the scheduler."""
    cluster.keeps_events = lambda: rng.random() >= share


def cut_from_limits(cluster: SharingCluster, rng: random.Random, count: int, until: float) -> None:
    """Cut `count` times a gateway off from the ledger of shared limits, within the first `until` seconds."""
    for link in rng.choices(cluster.limits.links, k=count):
        at = rng.uniform(0, until)
        cluster.clock.at(at, partial(setattr, link, "reachable", False))
        cluster.clock.at(at + rng.uniform(SHORTEST_SECONDS, 5.0), partial(setattr, link, "reachable", True))


def _crash(cluster: SimulatedCluster, worker: SimulatedWorker, seconds: float) -> None:
    def noticed() -> None:
        cluster.lost(worker)
        cluster.detach(worker)

    def back() -> None:
        worker.restart()
        cluster.attach(worker)

    if not worker.alive:
        return
    worker.crash()
    cluster.clock.after(DETECTED_SECONDS, noticed)
    cluster.clock.after(seconds, back)


def _stall(cluster: SimulatedCluster, worker: SimulatedWorker, seconds: float) -> None:
    until = cluster.clock.now + seconds
    worker.stalled_until = max(worker.stalled_until, until)

    def noticed() -> None:
        if cluster.clock.now < worker.stalled_until:
            cluster.lost(worker)

    cluster.clock.after(cluster.spec.stall_timeout, noticed)


def _slow(cluster: SimulatedCluster, worker: SimulatedWorker, seconds: float) -> None:
    def recover() -> None:
        worker.slowdown = 1.0

    worker.slowdown = SLOWDOWN
    cluster.clock.after(seconds, recover)


def _cut_from_gateway(cluster: SimulatedCluster, worker: SimulatedWorker, seconds: float) -> None:
    def stream(is_open: bool) -> None:
        for gateway in cluster.gateways:
            gateway.streaming[worker.name] = is_open

    if not cluster.gateways[0].streaming[worker.name]:
        return
    stream(False)
    cluster.clock.after(DETECTED_SECONDS, lambda: cluster.lost(worker))
    cluster.clock.after(seconds, lambda: stream(True))


def _cut_from_scheduler(cluster: SimulatedCluster, worker: SimulatedWorker, seconds: float) -> None:
    def heal() -> None:
        cluster.reachable[worker.name] = True
        cluster.attach(worker)

    if not cluster.reachable[worker.name]:
        return
    cluster.reachable[worker.name] = False
    cluster.clock.after(DETECTED_SECONDS, lambda: cluster.detach(worker))
    cluster.clock.after(seconds, heal)

"""What must hold in every run, whatever is scheduled and whatever breaks.

That no token is lost or doubled, and that every call ends once, the gateway asserts itself as tokens come.
"""

from functools import partial

from simulation.cluster import Cluster
from simulation.journal import Journal
from simulation.worker import Worker


def watch(cluster: Cluster) -> None:
    """From now on check after every step; expensive, O(pages)."""
    for worker in cluster.workers.values():
        worker.checked = partial(_check, cluster)


def _check(cluster: Cluster, worker: Worker) -> None:
    worker.batcher.check_invariants()
    cluster.dispatcher.check_invariants()
    cluster.gateway.check_invariants()
    bound = worker.batcher.policy.bound_micro
    gap = worker.batcher.fairness_gap
    assert bound is None or gap <= bound, f"{worker.name}: service gap {gap} above the bound {bound}"


def run_watched(cluster: Cluster) -> Journal:
    """Run to the end, checking; then nothing may be left anywhere. Raises AssertionError."""
    watch(cluster)
    journal = cluster.run()
    for worker in cluster.workers.values():
        batcher = worker.batcher
        left = batcher.waiting, batcher.running, batcher.cache.referenced
        assert left == (0, 0, 0), f"{worker.name}: (waiting, running, referenced pages) = {left} at the end"
    for member in cluster.dispatcher.live(cluster.clock.now):
        assert not member.outstanding, f"{member.identity.worker}: {member.outstanding} assignments never ended"
    return journal

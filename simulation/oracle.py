"""What must hold in every run, whatever is scheduled and whatever breaks.

That no token is lost or doubled, and that every call ends once, the gateway asserts itself as tokens come. DoubleQ's
bound (DLPM Theorem 5.1) needs no look of its own: a client that is backlogged on every worker is so on each, and the
gaps there add up.
"""

from functools import partial

from simulation.books import Books
from simulation.cluster import Cluster
from simulation.journal import Journal
from simulation.refusals import check_refusals
from simulation.route_books import audited
from simulation.worker import Worker


def watch(cluster: Cluster) -> Books:
    """From now on check after every step; expensive, O(pages). To be called before the run."""
    books = Books(cluster.spec.worker)
    cluster.dispatcher.policy = audited(cluster.dispatcher.policy, cluster.spec)
    for worker in cluster.workers.values():
        worker.entered = books.entered
        worker.checked = partial(_check, cluster, books)
    return books


def _check(cluster: Cluster, books: Books, worker: Worker) -> None:
    worker.jobs.check_invariants()
    cluster.dispatcher.check_invariants()
    cluster.gateway.check_invariants()
    books.check_accounts(worker)
    bound = worker.batcher.policy.bound_micro
    gap = worker.batcher.fairness_gap
    assert bound is None or gap <= bound, f"{worker.name}: service gap {gap} above the bound {bound}"


def run_watched(cluster: Cluster) -> Journal:
    """Run to the end, checking; then nothing may be left anywhere. Raises AssertionError."""
    books = watch(cluster)
    journal = cluster.run()
    books.check_calls()
    check_refusals(cluster.spec, journal.calls)
    for worker in cluster.workers.values():
        batcher = worker.batcher
        left = batcher.waiting, batcher.running, batcher.cache.referenced
        assert left == (0, 0, 0), f"{worker.name}: (waiting, running, referenced pages) = {left} at the end"
    for member in cluster.dispatcher.live(cluster.clock.now):
        assert not member.outstanding, f"{member.identity.worker}: {member.outstanding} assignments never ended"
    return journal

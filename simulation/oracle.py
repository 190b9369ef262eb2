"""Checks that must hold in every run, under any workload and any faults.

The gateway itself asserts, as tokens arrive, that no token is lost or duplicated and that every call ends once.
DoubleQ's bound (DLPM Theorem 5.1) needs no separate check: a client that is backlogged on all workers is backlogged on
each of them, and the bound is the sum of the workers' gaps.
"""

from functools import partial

from simulation.charge_auditor import ChargeAuditor
from simulation.cluster import SimulatedCluster
from simulation.limit_auditor import LimitAuditor
from simulation.refusals import check_refusals
from simulation.route_audit import audited
from simulation.run_log import RunLog
from simulation.worker import SimulatedWorker


def watch(cluster: SimulatedCluster) -> ChargeAuditor:
    """Check the system after every step of the coming run, at O(pages) per check; call this before the run."""
    auditor = ChargeAuditor(cluster.spec.worker)
    limits = LimitAuditor(cluster.spec, cluster.limits.links)
    for gateway in cluster.gateways:
        gateway.admission.admitted = limits.admitted
    cluster.dispatcher.policy = audited(cluster.dispatcher.policy, cluster.spec)
    for worker in cluster.workers.values():
        worker.entered = auditor.entered
        worker.checked = partial(_check, cluster, auditor)
    return auditor


def _check(cluster: SimulatedCluster, auditor: ChargeAuditor, worker: SimulatedWorker) -> None:
    worker.jobs.check_invariants()
    worker.gatherer.check_invariants()
    cluster.dispatcher.check_invariants()
    for gateway in cluster.gateways:
        gateway.check_invariants()
    auditor.check_accounts(worker)
    bound = worker.batcher.policy.bound_micro
    gap = worker.batcher.fairness_gap
    assert bound is None or gap <= bound, f"{worker.name}: service gap {gap} above the bound {bound}"


def run_watched(cluster: SimulatedCluster) -> RunLog:
    """Run to the end with all checks. Raises AssertionError, also when a request, page or assignment is left."""
    auditor = watch(cluster)
    run_log = cluster.run()
    auditor.check_calls()
    check_refusals(cluster.spec, run_log.calls)
    for worker in cluster.workers.values():
        batcher = worker.batcher
        left = batcher.waiting, batcher.running, batcher.cache.referenced
        assert left == (0, 0, 0), f"{worker.name}: (waiting, running, referenced pages) = {left} at the end"
    for member in cluster.dispatcher.live(cluster.clock.now):
        assert not member.outstanding, f"{member.identity.worker}: {member.outstanding} assignments never ended"
    return run_log

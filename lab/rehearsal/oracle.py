"""Checks that must hold in every run, under any workload and any faults.

The gateway itself asserts, as tokens arrive, that no token is lost or duplicated and that every call ends once.
DoubleQ's bound (DLPM Theorem 5.1) needs no separate check: a client that is backlogged on all workers is backlogged on
each of them, and the bound is the sum of the workers' gaps.
"""

from gateway.core.call import CallMachine
from lab.rehearsal.charge_auditor import ChargeAuditor
from lab.rehearsal.encoding import encode_texts
from lab.rehearsal.limit_auditor import LimitAuditor
from lab.rehearsal.refusals import check_refusals
from lab.rehearsal.route_audit import audited
from lab.rehearsal.sharing_cluster import SharingCluster
from lab.rehearsal.wait_auditor import WaitAuditor
from simulation.cluster import SimulatedCluster
from simulation.run_log import RunLog
from simulation.worker import SimulatedWorker

# Steps from one check of the whole state to the next. It is prime, so that each of several workers that step in turn
# is checked.
EVERY = 7


class Oracle:
    """The checks of one run of `cluster`, which is made before the run. Violations raise AssertionError.

    A call's machine is checked after each event that it handles. After each step of a worker, its gap and the accounts
    that the step may have charged are checked. After every `every`-th step and at the end, the whole state is checked:
    what is wrong in a queue, a batch, a cache, an index or a window usually stays wrong.
    """

    def __init__(self, cluster: SimulatedCluster, every: int = EVERY) -> None:
        self._cluster = cluster
        self._every = every
        self._steps = 0
        self._auditor = ChargeAuditor(cluster.spec.worker)
        self._waits: dict[tuple[str, int], WaitAuditor] = {}  # by worker and life
        limits = LimitAuditor(cluster.spec, cluster.limits.links if isinstance(cluster, SharingCluster) else ())
        for gateway in cluster.gateways:
            encode_texts(cluster, gateway)
            gateway.handled = CallMachine.check_invariants
            gateway.admission.admitted = limits.admitted
        cluster.dispatcher.policy = audited(cluster.dispatcher.policy, cluster.spec)
        for worker in cluster.workers.values():
            worker.submitted = self._auditor.submitted
            worker.checked = self._check_step

    def _check_step(self, worker: SimulatedWorker) -> None:
        self._auditor.check_charged_accounts(worker)
        bound, gap = worker.batcher.queue.policy.bound_micro, worker.batcher.queue.ledger.worst_gap
        assert bound is None or gap <= bound, f"{worker.name}: service gap {gap} above the bound {bound}"
        life, cost = (worker.name, worker.life), worker.spec.make_cost()
        self._waits.setdefault(life, WaitAuditor(cost)).stepped(worker.batcher)
        self._steps += 1
        if self._steps % self._every == 0:
            self._check_system()
            self._check_worker(worker)

    def _check_worker(self, worker: SimulatedWorker) -> None:
        worker.machine.check_invariants()
        worker.delivery.check_invariants()
        self._auditor.check_accounts(worker)

    def _check_system(self) -> None:
        self._cluster.dispatcher.check_invariants()
        for gateway in self._cluster.gateways:
            gateway.admission.check_invariants()

    def check_end(self, run_log: RunLog) -> None:
        """Check the whole system after the run, in which every call and every request has ended."""
        cluster = self._cluster
        self._check_system()
        self._auditor.check_calls()
        check_refusals(cluster.spec, len(cluster.gateways), run_log.calls)
        for worker in cluster.workers.values():
            self._check_worker(worker)
            batcher = worker.batcher
            left = len(batcher.queue.waiting), len(batcher.queue.running), batcher.queue.cache.referenced
            assert left == (0, 0, 0), f"{worker.name}: (waiting, running, referenced pages) = {left} at the end"
        for member in cluster.dispatcher.live(cluster.clock.now):
            assert not member.outstanding, f"{member.identity.worker}: {member.outstanding} assignments never ended"


def run_watched(cluster: SimulatedCluster, every: int = EVERY) -> RunLog:
    """Run to the end with all checks, those of the whole state after every `every`-th step (see Oracle).

    Raises AssertionError, also when a request, page or assignment is left.
    """
    oracle = Oracle(cluster, every)
    run_log = cluster.run()
    oracle.check_end(run_log)
    return run_log

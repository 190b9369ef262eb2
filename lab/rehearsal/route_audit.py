"""The audit of each routing policy that keeps accounts."""

from global_scheduler.core.policies import RoutePolicy
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.policies.least_delay import LeastDelay
from lab.rehearsal.doubleq_auditor import DoubleQAuditor
from lab.rehearsal.least_delay_auditor import LeastDelayAuditor
from simulation.spec import ClusterSpec


def audited(policy: RoutePolicy, spec: ClusterSpec) -> RoutePolicy:
    """Wrap `policy` in its auditor, if it has accounts."""
    if isinstance(policy, DoubleQ):
        return DoubleQAuditor(policy, spec)
    return LeastDelayAuditor(policy) if isinstance(policy, LeastDelay) else policy

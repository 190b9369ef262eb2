"""A simulated cluster with several gateways, which share limits and claims as the real ones do through Redis."""

from collections.abc import Callable
from dataclasses import dataclass

from global_scheduler.core.dispatcher import Dispatcher
from lab.rehearsal.shared_claims import SharedClaims
from lab.rehearsal.shared_limits import SharedLimits
from simulation.admission import SimulatedAdmission, Tokens
from simulation.clock import VirtualClock
from simulation.cluster import SimulatedCluster
from simulation.gateway import SimulatedGateway
from simulation.run_log import RunLog
from simulation.spec import ClusterSpec
from simulation.workload import Workload
from throttler.core.leased_quota import LeasedQuota
from throttler.core.windows import QuotaDemand


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSpec(ClusterSpec):
    """A pool behind several gateways, to which calls go in turn."""

    gateways: int = 1


class SharingAdmission(SimulatedAdmission):
    """The admission at one of several gateways."""

    def __init__(
        self, spec: SharingSpec, clock: VirtualClock, dispatcher: Dispatcher, tokens: Tokens, limits: SharedLimits
    ) -> None:
        leases = LeasedQuota(spec.window_seconds, spec.gateways)
        super().__init__(spec, clock, dispatcher, tokens, leases)
        self._link = limits.connect(leases, self.throttle.window)

    def _lease(self, demand: QuotaDemand, then: Callable[[], None]) -> None:
        self._link.lease(demand, then)

    def check_invariants(self) -> None:
        super().check_invariants()
        self._link.check_invariants()


class SharingCluster(SimulatedCluster):
    """A SimulatedCluster as `spec` describes it."""

    spec: SharingSpec

    def __init__(self, spec: SharingSpec, workload: Workload) -> None:
        super().__init__(spec, workload)

    def _make_gateways(self) -> list[SimulatedGateway]:
        self.limits = SharedLimits(self.spec, self.clock, lambda: self.idle)
        tokens: Tokens = {}
        gateways = [self._make_gateway(tokens) for _ in range(self.spec.gateways)]
        self.claims = SharedClaims([gateway.admission.claims for gateway in gateways], self.clock, lambda: self.idle)
        return gateways

    def _make_gateway(self, tokens: Tokens) -> SimulatedGateway:
        if self.spec.gateways == 1:
            return super()._make_gateway(tokens)
        admission = SharingAdmission(self.spec, self.clock, self.dispatcher, tokens, self.limits)
        return SimulatedGateway(self.spec, self.clock, self.dispatcher, self.workers, admission, self._done)

    def run(self) -> RunLog:
        self.limits.start()
        self.claims.start()
        return super().run()

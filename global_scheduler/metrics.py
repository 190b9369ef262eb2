"""Metrics of the cluster, measured once a second."""

import asyncio
import time
from collections import Counter

from opentelemetry.metrics import Meter

from global_scheduler.cluster_snapshot import ClusterSnapshot
from global_scheduler.core.client_service_table import ClientServiceTable
from global_scheduler.core.recent_fairness import RecentFairness
from global_scheduler.service import SchedulerService
from serving.names import tenant_of

STATE_SECONDS = 1.0
WINDOW_SECONDS = 60.0


class SchedulerMetrics:
    """Gauges of the scheduler's view of the cluster. Clients are no labels; their equality is one Jain index."""

    def __init__(self, meter: Meter, scheduler: SchedulerService) -> None:
        self._scheduler = scheduler
        self._fairness = RecentFairness(WINDOW_SECONDS)
        self._models: set[str] = set()
        gauge = meter.create_gauge
        self._epoch = gauge(
            "fairlead.scheduler.epoch", description="Epoch that this scheduler leads; 0 while it is a standby"
        )
        self._members = gauge("fairlead.members", description="Attached workers, by model and state")
        self._overloaded = gauge("fairlead.pool.overloaded", description="1 while the model's pool is overloaded")
        self._clients = gauge("fairlead.clients.backlogged", description="Clients with requests waiting at workers")
        self._compared = gauge("fairlead.fairness.clients", description="Clients that the Jain index compares")
        self._jain = gauge(
            "fairlead.fairness.jain", description="Jain index of siblings' weighted service over the last full minute"
        )

    async def run(self) -> None:
        """Set the gauges once a second until cancelled."""
        while True:
            self._set(self._scheduler.snapshot(), self._scheduler.client_services)
            await asyncio.sleep(STATE_SECONDS)

    def _set(self, cluster: ClusterSnapshot, client_services: ClientServiceTable) -> None:
        self._epoch.set(cluster.epoch)
        members = Counter(
            (model.name, "draining" if member.load.draining else "serving")
            for member in cluster.members.values()
            for model in member.models
        )
        self._models |= cluster.pools.keys()
        for model in sorted(self._models):
            for word in ("serving", "draining"):
                self._members.set(members[model, word], {"model": model, "state": word})
            self._overloaded.set(int(cluster.pools.get(model, False)), {"model": model})
        self._clients.set(len(client_services.waiting))
        siblings = tenant_of if self._scheduler.is_fair_among_tenants else _all_clients
        self._fairness.observe(client_services.waiting, client_services.weighted, siblings, time.monotonic())
        self._compared.set(self._fairness.clients)
        if self._fairness.index is not None:
            self._jain.set(self._fairness.index)


def _all_clients(client: str) -> str:
    """Return the name of the group in which every client is, where workers are fair among users alone."""
    return ""

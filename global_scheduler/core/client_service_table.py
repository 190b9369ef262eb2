"""The service that each client received at each worker."""

from collections.abc import KeysView
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from serving.bounded_client_map import MOST_IDLE, BoundedClientMap


class ClientService(NamedTuple):
    """One client's account at one worker: service and balance in cost units, waiting and running requests."""

    service: float
    weighted: float
    balance: float
    waiting: int
    running: int


NOTHING = ClientService(0.0, 0.0, 0.0, 0, 0)


@dataclass(slots=True)
class ClientTotals:
    """One client's service and requests over all workers.

    `waiting` counts the workers where it has queued requests, `busy` those where it has any requests.
    """

    services: dict[str, ClientService] = field(default_factory=dict)  # by worker
    waiting: int = 0
    busy: int = 0


class ClientServiceTable:
    """Service of each client by worker. A report costs O(1), independent of the number of clients and workers."""

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self._clients: BoundedClientMap[str, ClientTotals] = BoundedClientMap(most_idle)
        self._waiting: dict[str, None] = {}
        self._busy: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def waiting(self) -> KeysView[str]:
        """Clients that have requests in at least one worker's queue."""
        return self._waiting.keys()

    def weighted(self, client: str) -> float:
        """Return the client's service divided by its weight, summed over all workers, in cost units."""
        return sum(service.weighted for service in self._clients[client].services.values())

    def reported(self, worker: str, client: str, service: ClientService) -> None:
        totals = self._clients.get(client)
        if totals is None:
            totals = self._clients[client] = ClientTotals()
        earlier = totals.services.get(worker, NOTHING)
        totals.services[worker] = service
        self._changed(client, totals, earlier, service)

    def lost(self, worker: str) -> None:
        """Remove a worker and the service recorded for it. O(clients); workers leave rarely."""
        for client in list(self._clients):
            totals = self._clients.get(client)  # None: evicted from the map when other clients became idle
            earlier = None if totals is None else totals.services.pop(worker, None)
            if totals is None or earlier is None:
                continue
            if not totals.services:
                self._clients.forget(client)
                self._waiting.pop(client, None)
                self._busy.pop(client, None)
            elif _is_busy(earlier):
                self._changed(client, totals, earlier, NOTHING)

    def _changed(self, client: str, totals: ClientTotals, earlier: ClientService, service: ClientService) -> None:
        totals.waiting += bool(service.waiting) - bool(earlier.waiting)
        totals.busy += _is_busy(service) - _is_busy(earlier)
        if totals.waiting:
            self._waiting[client] = None
        else:
            self._waiting.pop(client, None)
        if totals.busy:
            self._busy[client] = None
            self._clients.activate(client)
            return
        self._busy.pop(client, None)
        self._clients.rest(client)

    def latest(self, most: int) -> dict[str, ClientTotals]:
        """Return clients that have requests, then those that had some most recently, with at most `most` services."""
        found: dict[str, ClientTotals] = {}
        for client in chain(self._busy, self._clients.latest_idle()):
            totals = self._clients[client]
            most -= len(totals.services)
            if most < 0:
                break
            found[client] = totals
        return found

    def check_invariants(self) -> None:
        for client, totals in self._clients.items():
            services = totals.services.values()
            assert services, f"{client} is remembered for nothing"
            assert totals.waiting == sum(service.waiting > 0 for service in services), f"{client}: waiting"
            assert totals.busy == sum(map(_is_busy, services)), f"{client}: busy"
            places = (client in self._waiting, client in self._busy, self._clients.is_idle(client))
            assert places == (totals.waiting > 0, totals.busy > 0, not totals.busy), f"{client}: {places}"
        self._clients.check_invariants()


def _is_busy(service: ClientService) -> bool:
    return service.waiting > 0 or service.running > 0

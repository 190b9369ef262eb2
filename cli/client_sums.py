"""What users and tenants have at all workers together, from the scheduler's status."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairlead.v1 import scheduler_pb2
from serving.names import tenant_of
from serving.page_shares import PageSum, of_clients, of_tenants


@dataclass(slots=True)
class ClientSum:
    """The sums of a user or a tenant over all workers; `balances` are its users', each with the worker."""

    name: str
    service: float = 0.0
    weighted: float = 0.0
    waiting: int = 0
    running: int = 0
    held: PageSum | None = None  # None: no worker tells
    balances: list[tuple[str, float]] = field(default_factory=list)
    users: set[str] = field(default_factory=set)


def users(status: scheduler_pb2.StatusResponse) -> list[ClientSum]:
    return _sums(status, str, of_clients(status.cluster.members))


def tenants(status: scheduler_pb2.StatusResponse) -> list[ClientSum]:
    return _sums(status, tenant_of, of_tenants(status.cluster.members))


def _sums(
    status: scheduler_pb2.StatusResponse, of: Callable[[str], str], held: Mapping[str, PageSum]
) -> list[ClientSum]:
    """Return the sums of the clients for which `of` returns the same name."""
    sums: dict[str, ClientSum] = {}
    for worker in status.services:
        for client in worker.clients:
            name = of(client.client)
            found = sums.setdefault(name, ClientSum(name, held=held.get(name)))
            found.service += client.service
            found.weighted += client.weighted_service
            found.waiting += client.waiting
            found.running += client.running
            found.balances.append((worker.worker, client.balance))
            found.users.add(client.client)
    return list(sums.values())

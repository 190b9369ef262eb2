"""Outstanding work of each client at each worker: what is booked there and has not ended."""

from collections.abc import Iterator

from global_scheduler.core.outstanding_table import slots
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap


class ClientBacklog:
    """One client's outstanding requests at one worker: how many, their work in micro-units, the latest one's weight."""

    __slots__ = ("requests", "weight", "work")

    def __init__(self) -> None:
        self.requests = self.weight = self.work = 0


class WorkerBacklog:
    """All outstanding requests at one worker: their work in micro-units, and the sum of the weights of the clients."""

    __slots__ = ("weight", "work")

    def __init__(self) -> None:
        self.weight = self.work = 0


class RoutedClient:
    """One client's backlogs by slot, the bitmask of these slots, and what it usually generates.

    `output` is a moving average over the client's requests, in 1 / SCALE tokens; None before its first request ended.
    """

    __slots__ = ("backlogs", "output", "workers")

    def __init__(self) -> None:
        self.backlogs: dict[int, ClientBacklog] = {}
        self.workers = 0
        self.output: int | None = None


class BacklogTable:
    """The backlogs of all clients and workers. Booking and releasing take O(1)."""

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self._clients: BoundedClientMap[str, RoutedClient] = BoundedClientMap(most_idle)
        self._workers: dict[int, WorkerBacklog] = {}

    def client(self, name: str) -> RoutedClient:
        """Return the client's record, new if the client is new or was idle longer than all that are remembered."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = RoutedClient()
            self._clients.rest(name)
        return client

    def worker(self, slot: int) -> WorkerBacklog | None:
        """Return the backlog at `slot`; None when it has none."""
        return self._workers.get(slot)

    def book(self, name: str, slot: int, work: int, weight: int) -> None:
        """Add a request of `work` micro-units; from now on the client counts at `slot` with the weight `weight`."""
        client = self.client(name)
        backlog = client.backlogs.get(slot)
        if backlog is None:
            backlog = client.backlogs[slot] = ClientBacklog()
            client.workers |= 1 << slot
            self._clients.activate(name)
        worker = self._workers.get(slot)
        if worker is None:
            worker = self._workers[slot] = WorkerBacklog()
        worker.work += work
        worker.weight += weight - backlog.weight
        backlog.work += work
        backlog.weight = weight
        backlog.requests += 1

    def release(self, name: str, slot: int, work: int) -> RoutedClient:
        """Remove a booked request and return its client's record."""
        client, worker = self._clients[name], self._workers[slot]
        backlog = client.backlogs[slot]
        worker.work -= work
        backlog.work -= work
        backlog.requests -= 1
        if not backlog.requests:
            worker.weight -= backlog.weight
            if not worker.weight:
                del self._workers[slot]
            self._leave(name, client, slot)
        return client

    def forget(self, slot: int) -> None:
        """Drop all that is outstanding at `slot`. O(clients); workers leave rarely."""
        if self._workers.pop(slot, None) is None:
            return
        for name, client in list(self._clients.items()):
            if slot in client.backlogs:
                self._leave(name, client, slot)

    def _leave(self, name: str, client: RoutedClient, slot: int) -> None:
        del client.backlogs[slot]
        client.workers &= ~(1 << slot)
        if not client.workers:
            self._clients.rest(name)

    def outstanding(self) -> Iterator[tuple[str, int, ClientBacklog]]:
        """Yield every backlog with its client and slot."""
        for name, client in self._clients.items():
            for slot, backlog in client.backlogs.items():
                yield name, slot, backlog

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self._clients.check_invariants()
        sums: dict[int, tuple[int, int]] = {}
        for name, client in self._clients.items():
            assert slots(client.workers) == sorted(client.backlogs), f"{name}: workers {client.workers:b}"
            assert self._clients.is_idle(name) == (not client.workers), f"{name} is idle, with {client.workers:b}"
        for name, slot, backlog in self.outstanding():
            assert backlog.requests > 0, f"{name} has nothing at {slot}"
            assert backlog.work >= 0, f"{name} has {backlog.work} at {slot}"
            work, weight = sums.get(slot, (0, 0))
            sums[slot] = work + backlog.work, weight + backlog.weight
        workers = {slot: (worker.work, worker.weight) for slot, worker in self._workers.items()}
        assert workers == sums, f"workers {workers}, their clients {sums}"

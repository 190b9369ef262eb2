"""What is remembered of clients, against a list of everything that was said."""

from hypothesis import example, given
from hypothesis import strategies as st

from global_scheduler.core.client_service_table import ClientService, ClientServiceTable

MOST_IDLE = 2
CLIENTS = "abcde"
SERVICES = st.builds(
    ClientService, st.just(0.0), st.integers(0, 9).map(float), st.just(0.0), st.integers(0, 1), st.integers(0, 1)
)
# What a worker says of a client; None: the worker is lost.
SAID = st.lists(st.tuples(st.sampled_from("vw"), st.sampled_from(CLIENTS), st.none() | SERVICES), max_size=60)
Said = list[tuple[str, str, ClientService | None]]


class Everything:
    """Clients in the order in which they last became idle, or were idle and spoken of.

    Of those that become idle together, when a worker is lost, the one that has been known longest comes first.
    """

    def __init__(self) -> None:
        self.clients: dict[str, dict[str, ClientService]] = {}
        self._known: dict[str, None] = {}  # in the order in which they became known

    def is_busy(self, client: str) -> bool:
        return any(service.waiting or service.running for service in self.clients[client].values())

    def reported(self, worker: str, client: str, service: ClientService) -> None:
        self._put(client, self.clients.get(client, {}) | {worker: service})

    def lost(self, worker: str) -> None:
        for client in list(self._known):
            if worker not in self.clients.get(client, {}):
                continue
            was_busy = self.clients[client][worker].waiting or self.clients[client][worker].running
            del self.clients[client][worker]
            if not self.clients[client]:
                self._forget(client)
            elif was_busy:
                self._put(client, self.clients[client])

    def _put(self, client: str, services: dict[str, ClientService]) -> None:
        self.clients.pop(client, None)
        self.clients[client] = services
        self._known.setdefault(client)
        idle = [each for each in self.clients if not self.is_busy(each)]
        if len(idle) > MOST_IDLE:
            self._forget(idle[0])

    def _forget(self, client: str) -> None:
        del self.clients[client], self._known[client]


IDLE, RUNNING = ClientService(0.0, 0.0, 0.0, 0, 0), ClientService(0.0, 0.0, 0.0, 0, 1)
IDLE_TOGETHER: Said = [
    ("v", "c", RUNNING), ("w", "b", IDLE), ("v", "b", RUNNING), ("w", "c", IDLE), ("v", "a", None), ("v", "a", IDLE),
]  # fmt: skip


@example(said=IDLE_TOGETHER)
@given(said=SAID)
def test_the_busy_and_the_latest_of_the_idle_are_remembered(said: Said) -> None:
    standings, model = ClientServiceTable(MOST_IDLE), Everything()
    for worker, client, service in said:
        if service is None:
            standings.lost(worker)
            model.lost(worker)
        else:
            standings.reported(worker, client, service)
            model.reported(worker, client, service)
        standings.check_invariants()
        assert {name: standing.services for name, standing in standings.latest(1_000).items()} == model.clients
        assert len(standings) == len(model.clients)
        waits = {name for name, services in model.clients.items() if any(each.waiting for each in services.values())}
        assert set(standings.waiting) == waits
        for name, services in model.clients.items():
            assert standings.weighted(name) == sum(each.weighted for each in services.values())


def test_standings_beyond_the_limit_leave_out_the_clients_idle_longest() -> None:
    standings = ClientServiceTable()
    for client in "abc":
        for worker in "vw":
            standings.reported(worker, client, ClientService(1.0, 1.0, 0.0, 0, 0))
    standings.reported("v", "d", ClientService(1.0, 1.0, 0.0, 1, 0))
    assert list(standings.latest(5)) == ["d", "c", "b"]
    assert list(standings.latest(4)) == ["d", "c"]

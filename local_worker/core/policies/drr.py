"""Deficit round robin for outputs of unknown length (VTC Appendix C.2). Unit of fairness: service per client.

Bound: 2 (U + Q) + Q for two continuously backlogged clients, U as for DLPM: visits alternate, each grants one quantum
at most, and a balance stays in (-U, Q]. Trade-off: as VTC, the order is by client and the cache suffers;
with a quantum below one token's cost it is VTC.
"""

from collections.abc import Sequence

from fairlead.cost import MICRO, charge
from local_worker.core.charging import Charging
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import Gate, PolicyConfig
from local_worker.core.request import Request


class Drr:
    """`balance` is the debt variable C_i: positive while the client may schedule."""

    balance_range_micro = None

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._quantum = config.quantum_tokens * MICRO
        self._charging = Charging(config.cost)
        self._queues = ClientQueues()
        self._balances: dict[str, int] = {}
        self._visited: str | None = None  # whose visit memory interrupted: it goes on, but grants nothing again
        # Who is visited in turn, the next first: clients that wait, and others until their debt is paid.
        self._circle: dict[str, None] = {}

    @property
    def bound_micro(self) -> int:
        """See QueuePolicy."""
        return 2 * (self._config.most_per_balance + self._quantum) + self._quantum

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queues)

    def arrived(self, request: Request) -> None:
        """A client that joins is visited last."""
        self._config = self._config.seen(request.weight)
        self._balances.setdefault(request.client, 0)
        self._circle.setdefault(request.client)
        self._queues.add(request)

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy."""
        self._queues.remove(request)

    def retracted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._circle.setdefault(request.client)
        self._queues.restore(request)

    def victim(self, running: Sequence[Request]) -> Request:
        """Of the client that is deepest in debt."""
        return min(running, key=lambda request: (self._balances[request.client], -request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """The order does not depend on the cache."""

    def select(self, gate: Gate) -> list[Request]:
        """Visits in turn until a request does not fit; that client's visit goes on at the next step."""
        admitted: list[Request] = []
        while len(self._queues):
            self._skip_empty_rounds()
            client = next(iter(self._circle))
            owes = self._balances[client] < 0 or (self._balances[client] == 0 and client in self._queues)
            if owes and client != self._visited:
                self._balances[client] += self._quantum
            self._visited = client
            while client in self._queues and self._balances[client] > 0:
                request = self._queues.first(client)
                tokens = gate.admit(request)
                if tokens is None:
                    return admitted
                self._queues.remove(request)
                self._charge(request, self._charging.extend(request, tokens))
                admitted.append(request)
            self._visited = None
            del self._circle[client]
            if client in self._queues or self._balances[client] < 0:
                self._circle[client] = None
        return admitted

    def _skip_empty_rounds(self) -> None:
        """Rounds in which no waiting client becomes positive, all at once; the others are paid up to no debt."""
        rounds = min(-self._balances[client] // self._quantum for client in self._queues.clients)
        if rounds <= 0:
            return
        for client in list(self._circle):
            balance = self._balances[client]
            if client in self._queues:
                self._balances[client] = balance + rounds * self._quantum
                continue
            self._balances[client] += max(0, min(rounds, -(balance // self._quantum))) * self._quantum
            if self._balances[client] >= 0:
                del self._circle[client]

    def generated(self, request: Request, tokens: int) -> None:
        """Output tokens as they come."""
        self._charge(request, self._charging.decode(request, tokens))

    def _charge(self, request: Request, micro: int) -> None:
        self._balances[request.client] -= charge(micro, request.weight)

    def finished(self, request: Request) -> None:
        """Debts stay until rounds have paid them."""

    def balance(self, client: str) -> int:
        """C_i in micro-units."""
        return self._balances.get(client, 0)

    def check_invariants(self) -> None:
        """No balance above a quantum; whoever waits is visited."""
        for client, balance in self._balances.items():
            assert balance <= self._quantum, f"{client}: balance {balance} above the quantum {self._quantum}"
        unvisited = [client for client in self._queues.clients if client not in self._circle]
        assert not unvisited, f"waiting and never visited: {unvisited}"

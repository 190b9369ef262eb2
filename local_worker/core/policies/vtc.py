"""Virtual Token Counter (VTC Algorithm 2). Unit of fairness: service received per client.

Bound: two continuously backlogged clients differ by at most 2 max(w_e L_input, w_q M) under reserve admission (VTC
Theorem 4.4). Input counts as the tokens that no cache held (DLPM section 3). Trade-off: the order is by client, so the
prefix cache suffers.
"""

from collections.abc import Sequence

from fairlead.cost import charge
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import Gate, PolicyConfig
from local_worker.core.request import Request


class Vtc:
    """`balance` is the counter c_i: the lower, the sooner served."""

    def __init__(self, config: PolicyConfig) -> None:
        self._cost = config.cost
        extend, decode = self._cost.extend(config.max_input_tokens), self._cost.decode(config.max_output_tokens)
        self.bound_micro = 2 * max(extend, decode)
        self._queues = ClientQueues()
        self._counters: dict[str, int] = {}
        self._last_left = ""  # the client that most recently had its last request leave the queue

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queues)

    def arrived(self, request: Request) -> None:
        """Lines 6-13: a client that (re)joins is lifted, so that time without demand earns no credit."""
        client = request.client
        if client not in self._queues:
            counter = self._counters.setdefault(client, 0)
            if self._queues.clients:
                floor = min(self._counters[other] for other in self._queues.clients)
            else:
                floor = self._counters.get(self._last_left, 0)
            self._counters[client] = max(counter, floor)
        self._queues.add(request)

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy."""
        self._queues.remove(request)
        if request.client not in self._queues:
            self._last_left = request.client

    def retracted(self, request: Request) -> None:
        """Without a lift: the client has not been away."""
        self._queues.restore(request)

    def victim(self, running: Sequence[Request]) -> Request:
        """Of the client that has received most."""
        return max(running, key=lambda request: (self._counters[request.client], request.arrival))

    def select(self, gate: Gate) -> list[Request]:
        """Lines 17-24: the least counter's earliest request, until one does not fit. Ties by earliest request."""
        admitted = []
        while self._queues.clients:
            client = min(self._queues.clients, key=lambda c: (self._counters[c], self._queues.first(c).arrival))
            request = self._queues.first(client)
            extend = gate.admit(request)
            if extend is None:
                break
            self.withdrawn(request)
            self._counters[client] += charge(self._cost.extend(extend), request.weight)
            admitted.append(request)
        return admitted

    def generated(self, request: Request, tokens: int) -> None:
        """Line 27: output tokens as they come, the first included."""
        self._counters[request.client] += charge(self._cost.decode(tokens), request.weight)

    def finished(self, request: Request) -> None:
        """Counters stay: they are what the lift compares with."""

    def balance(self, client: str) -> int:
        """c_i in micro-units."""
        return self._counters.get(client, 0)

    def check_invariants(self) -> None:
        """Every waiting client has a counter."""
        missing = [client for client in self._queues.clients if client not in self._counters]
        assert not missing, f"clients without counters: {missing}"

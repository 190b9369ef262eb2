"""Deficit Longest Prefix Match (DLPM Algorithm 1), the default. Unit of fairness: service received per client.

Bound: two continuously backlogged clients of weight one differ by at most 2 (U + Q^u), U = w_e L_input + w_q M, which
holds under reserve admission (Theorem 4.1); the same against clients that are not backlogged (Theorem 4.2). Within a
positive deficit the order is the cache's: locality is lost only where the order passes from one client to another.
"""

from collections.abc import Sequence

from fairlead.cost import MICRO, charge
from local_worker.core.charging import Charging
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import Gate, PolicyConfig
from local_worker.core.request import Request

# Admissions that may pass a request whose client has credit but which does not fit; then it is a barrier.
MAX_BYPASS = 32


class Dlpm:
    """`balance` is the deficit counter q_i, always in `(-U, Q^u]`; a client that was never charged has 0."""

    def __init__(self, config: PolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._quantum = config.quantum_tokens * MICRO
        self.bound_micro = 2 * (config.most_per_balance + self._quantum)
        self._queues = ClientQueues()
        self._balances: dict[str, int] = {}
        self._bypassed: dict[Request, int] = {}

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queues)

    def arrived(self, request: Request) -> None:
        """Lines 11-13."""
        self._balances.setdefault(request.client, 0)
        self._queues.add(request)

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy."""
        self._queues.remove(request)
        self._bypassed.pop(request, None)

    def retracted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._queues.restore(request)

    def victim(self, running: Sequence[Request]) -> Request:
        """Of the client that is deepest in debt."""
        return min(running, key=lambda request: (self._balances[request.client], -request.arrival))

    def select(self, gate: Gate) -> list[Request]:
        """Lines 16-25: passes over the queue in prefix order until a pass admits nothing."""
        order = sorted(self._queues.requests(), key=lambda r: (not r.in_interaction, -gate.match(r), r.arrival))
        admitted: list[Request] = []
        before = -1
        while order and len(admitted) > before:
            before = len(admitted)
            order = self._pass(order, gate, admitted)
        return admitted

    def _pass(self, order: list[Request], gate: Gate, admitted: list[Request]) -> list[Request]:
        """One pass of lines 18-25; returns what is left, in order, empty after a barrier."""
        left: list[Request] = []
        unfit: list[Request] = []
        for request in order:
            if self._balances[request.client] <= 0:
                self._check_refill()
            if self._balances[request.client] <= 0:
                left.append(request)
                continue
            extend = gate.admit(request)
            if extend is None:
                if self._bypassed.get(request, 0) >= MAX_BYPASS:
                    return []
                left.append(request)
                unfit.append(request)
                continue
            self.withdrawn(request)
            self._charge(request, self._charging.extend(request, extend))
            admitted.append(request)
            for passed in unfit:
                self._bypassed[passed] = self._bypassed.get(passed, 0) + 1
        return left

    def _check_refill(self) -> None:
        """CHECKREFILL, lines 3-8, as often as it takes for a queued client to have credit, in closed form.

        A client in debt has credit after `n_i = floor(-q_i / Q) + 1` rounds; the first queued one decides how many
        rounds pass, and every client in debt takes part until it has credit.
        """
        rounds = min(self._rounds(self._balances[client]) for client in self._queues.clients)
        if not rounds:
            return
        for client, balance in self._balances.items():
            if balance <= 0:
                self._balances[client] += min(rounds, self._rounds(balance)) * self._quantum

    def _rounds(self, balance: int) -> int:
        return -balance // self._quantum + 1 if balance <= 0 else 0

    def generated(self, request: Request, tokens: int) -> None:
        """Line 27; the first token is charged too."""
        self._charge(request, self._charging.decode(request, tokens))

    def _charge(self, request: Request, micro: int) -> None:
        self._balances[request.client] -= charge(micro, request.weight)

    def finished(self, request: Request) -> None:
        """Deficits stay until refills have paid them."""

    def balance(self, client: str) -> int:
        """q_i in micro-units."""
        return self._balances.get(client, 0)

    def check_invariants(self) -> None:
        """No balance above a quantum, every waiting client has one; the lower end holds for weights of at least one."""
        for client, balance in self._balances.items():
            assert balance <= self._quantum, f"{client}: balance {balance} above the quantum {self._quantum}"
        missing = [client for client in self._queues.clients if client not in self._balances]
        assert not missing, f"clients without balances: {missing}"

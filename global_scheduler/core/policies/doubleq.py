"""DoubleQ: locality until a client's quantum at a worker is spent, then the shortest queue (DLPM Alg. 2)."""

from collections.abc import Sequence

from fairlead.cost import MICRO, charge
from global_scheduler.core.fleet import Member
from global_scheduler.core.policies.base import PolicyConfig, Request, least_outstanding


class DoubleQ:
    """Accounts `q_{i,w}` per (client, model) and worker slot, in micro-units; never above Q^w.

    Two misprints of SELECTWORKER are corrected after the text of section 5.2: replenish while *no* worker is
    available (line 5), and prefer the candidates with the longest match if any is available (line 8).
    Emptiness is tested over the request's candidates only, so that nobody waits for another pool's credit.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._quantum = config.quantum_tokens * MICRO
        self._cost = config.cost
        self._accounts: dict[tuple[str, str], dict[int, int]] = {}

    def select(self, request: Request, candidates: Sequence[Member], longest: int) -> Member:
        """SELECTWORKER and the charge of line 16."""
        q = self._accounts.setdefault((request.client, request.model), {})
        self._replenish(q, candidates)
        available = [m for m in candidates if q[m.slot] > 0]
        chosen = least_outstanding([m for m in available if longest >> m.slot & 1] or available)
        q[chosen.slot] -= self._input_charge(request)
        return chosen

    def ended(self, request: Request, slot: int, output_tokens: int) -> None:
        """Line 22."""
        q = self._accounts[request.client, request.model]
        q[slot] -= charge(self._cost.decode(output_tokens, request.prompt_tokens, 0), request.weight)

    def refunded(self, request: Request, slot: int) -> None:
        """The input's charge returns, clamped at Q^w: replenishment may have paid for part of it already."""
        q = self._accounts[request.client, request.model]
        q[slot] = min(self._quantum, q[slot] + self._input_charge(request))

    def forget(self, slot: int) -> None:
        """A slot's next owner starts without debts."""
        for q in self._accounts.values():
            q.pop(slot, None)

    def balance(self, client: str, model: str, slot: int) -> int:
        """`q_{i,w}`; 0 before the client's first request."""
        return self._accounts.get((client, model), {}).get(slot, 0)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for key, q in self._accounts.items():
            for slot, balance in q.items():
                assert balance <= self._quantum, f"{key} at slot {slot}: {balance} is above {self._quantum}"

    def _replenish(self, q: dict[int, int], candidates: Sequence[Member]) -> None:
        """Lines 5 and 6 in closed form: as many quanta as the least indebted candidate needs to become positive."""
        best = max(q.setdefault(m.slot, 0) for m in candidates)
        if best <= 0:
            quanta = -best // self._quantum + 1
            for member in candidates:
                q[member.slot] += quanta * self._quantum

    def _input_charge(self, request: Request) -> int:
        return charge(self._cost.extend(request.prompt_tokens, 0), request.weight)

"""The bounds of DLPM: the range of a balance, and the gap between siblings, in micro-units (docs/fairness.md)."""

from local_worker.core.accounts.charging import OutputCharge
from local_worker.core.policies.protocol import QueuePolicyConfig
from serving.cost import MICRO


class DlpmBounds:
    """The bounds for requests of every weight that was seen."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self.gap = self._gap()  # the bound on the gap; every step reports it

    def seen(self, weight: int) -> None:
        """Record that there is a request of `weight` (thousandths)."""
        config = self._config.seen(weight)
        if config is not self._config:
            self._config = config
            self.gap = self._gap()

    @property
    def most_debt(self) -> int:
        """U, the largest debt: all that can be charged after a balance was last positive.

        Where output is charged when it is reserved, it is the cost of one request. Otherwise it is that of one prompt
        and of all output that memory holds; a barrier enters when its client's running requests may have used the whole
        memory once, so that its own output is added.
        """
        config = self._config
        if config.charge is OutputCharge.RESERVED:
            return config.most_extend + config.most_output
        return config.most_per_balance + (0 if config.strict_paper else config.most_output)

    @property
    def most_returned(self) -> int:
        """V, the largest sum of the deposits of an account: what a balance can exceed the quantum by."""
        config = self._config
        if config.charge is OutputCharge.GENERATED:
            return 0
        return config.most_decode + (0 if config.strict_paper else config.most_output)

    @property
    def balance_range(self) -> tuple[int, int]:
        """The range `(-U, Q + V]` of a balance; with V = 0 it is that of Theorem A.1."""
        return -self.most_debt, self._quantum + self.most_returned

    def _gap(self) -> int:
        """The bound `2 (U + Q + V)` on the gap; with V = 0 it is that of Theorem 4.1."""
        return 2 * (self.most_debt + self._quantum + self.most_returned)

    @property
    def _quantum(self) -> int:
        return self._config.quantum_tokens * MICRO

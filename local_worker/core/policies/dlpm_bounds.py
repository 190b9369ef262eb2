"""The bounds of DLPM: the range of a balance, and the gap between siblings, in micro-units (docs/fairness.md)."""

from local_worker.core.policies.protocol import QueuePolicyConfig
from serving.cost import MICRO


class DlpmBounds:
    """The bounds of whole requests (DLPM Theorems A.1 and 4.1), of every weight that was seen."""

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
        """U, the largest debt: the cost of one prompt, and of all output that memory holds."""
        return self._config.most_per_balance

    @property
    def balance_range(self) -> tuple[int, int]:
        """The range `(-U, Q]` of a balance; in slices it includes -U'."""
        return -self.most_debt, self._quantum

    def _gap(self) -> int:
        """The bound `2 (U + Q)` on the gap."""
        return 2 * (self.most_debt + self._quantum)

    @property
    def _quantum(self) -> int:
        return self._config.quantum_tokens * MICRO


class SliceBounds(DlpmBounds):
    """The bounds of fair slices: U' in place of U, and both once a preemption was forbidden."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._is_wide = False
        super().__init__(config)

    def widen(self) -> None:
        """Record that a request had to wait for others, far in debt, to end."""
        if not self._is_wide:
            self._is_wide = True
            self.gap = self._gap()

    @property
    def most_debt(self) -> int:
        """U': P, a block of a prompt, and what steps generate before it is charged.

        It contains neither the length of a prompt nor the size of memory. Where no request gives way for its client's
        debt (P = 0), it is U and a block.
        """
        config = self._config
        if not config.most_debt:
            return config.most_block + config.most_per_balance
        debt = config.most_debt + config.most_block + config.most_uncharged
        return debt + config.most_per_balance if self._is_wide else debt


class CounterBounds(SliceBounds):
    """The bounds of VTC over slices: counters of hungry accounts differ by at most U'."""

    def _gap(self) -> int:
        """The bound `2 U'` on the gap."""
        return 2 * self.most_debt

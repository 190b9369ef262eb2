"""DLPM with deposits for the expected output, which the benchmark measures and no worker offers (ADR 22)."""

from dataclasses import replace

from local_worker.core.accounts.charging import OutputCharge
from local_worker.core.policies.deposits import Deposits
from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.dlpm_bounds import DlpmBounds
from local_worker.core.policies.output_lengths import OutputLengths
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.request import Request


class ExpectedDeposits(Deposits):
    """Deposits for the mean of the client's last five outputs, as VTC predicts them; none before its first."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._lengths = OutputLengths(config.most_idle)

    def _paid_ahead(self, request: Request) -> int:
        return min(self._lengths.expected(request.client) or 0, super()._paid_ahead(request))

    def ended(self, request: Request) -> None:
        """Learn the length of an output."""
        self._lengths.ended(request.client, request.output_tokens)


class ExpectedDlpm(Dlpm):
    """DLPM whose deposits are for the expected output; output beyond it is charged when it is generated.

    All running requests may generate more than was expected, so that a balance falls as far as without deposits, and
    rises as far as with them.
    """

    _deposits: ExpectedDeposits

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(config)
        self._deposits = ExpectedDeposits(config)
        without = DlpmBounds(replace(config, charge=OutputCharge.GENERATED))
        self._more_debt = without.most_debt - self._bounds.most_debt

    @property
    def bound_micro(self) -> int:
        """The bound 2 (U + Q + V) in micro-units, with U as without deposits; see QueuePolicy."""
        return super().bound_micro + 2 * self._more_debt

    def finished(self, request: Request) -> None:
        """Learn the length of the output; see QueuePolicy."""
        self._deposits.ended(request)
        super().finished(request)

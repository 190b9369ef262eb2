"""Deposits: what the accounts of running requests have paid for output before it is generated."""

from local_worker.core.accounts.account import Account, Path
from local_worker.core.accounts.charging import Charging, OutputCharge
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.request import Request
from serving.cost import charge

Deposit = dict[Account, int]  # what is left for each account, in micro-units over its weight


def draw(deposit: Deposit, account: Account, amount: int) -> int:
    """Pay `amount` out of the deposit as far as it reaches; return the rest, which the account has to pay."""
    paid = min(amount, deposit[account])
    deposit[account] -= paid
    return amount - paid


class Deposits:
    """The deposit of each request that runs or is a barrier: an amount for each account on its path, in micro-units.

    Output is paid out of the deposit as it is generated; what is left of it at the end goes back to the accounts.
    """

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._mode = config.charge
        self._charging = Charging(config.cost)
        self._left: dict[Request, Deposit] = {}

    def make(self, request: Request) -> None:
        """Charge the accounts of the lineage of `request` for the output that it may generate, unless it has paid.

        What is generated already or charged as room is not charged again.
        """
        if self._mode is OutputCharge.GENERATED or request in self._left:
            return
        start, stop = max(request.reserved, request.output_tokens), self._paid_ahead(request)
        if stop <= start:
            return
        micro = self._charging.output(request, start, stop)
        self._left[request] = {
            account: charge(micro, request.weight if account.is_highest else request.user_weight)
            for account in request.account.lineage
        }
        for account, amount in self._left[request].items():
            account.charge(amount)

    def _paid_ahead(self, request: Request) -> int:
        """Return the number of output tokens that `request` pays for at admission."""
        return request.sampling.max_tokens

    def of(self, request: Request) -> Deposit | None:
        """Return what is left of the deposit of `request`; None if it has made none."""
        return self._left.get(request)

    def give_back(self, request: Request) -> bool:
        """Return to the accounts of `request` what is left of its deposit; return whether it had made one."""
        deposit = self._left.pop(request, {})
        for account, left in deposit.items():
            account.charge(-left)
        return bool(deposit)

    def at(self, path: Path) -> int:
        """Return what is left of the deposits of the account at the end of `path`, in micro-units over its weight."""
        deposits = (entry for deposit in self._left.values() for entry in deposit.items())
        return sum(left for account, left in deposits if account.path == path)

    def check_invariants(self) -> None:
        """Raise AssertionError when a deposit is negative."""
        for request, deposit in self._left.items():
            assert all(left >= 0 for left in deposit.values()), f"{request.id}: a deposit of {list(deposit.values())}"

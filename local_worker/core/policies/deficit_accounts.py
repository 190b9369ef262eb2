"""Deficit accounts (DLPM Algorithm 1, lines 3-8), refilled lazily: a refill is O(1) however many clients there are."""

from dataclasses import dataclass

from serving.bounded_client_map import MOST_IDLE, BoundedClientMap


@dataclass(slots=True)
class DeficitAccount:
    """A balance as it was after the round `paid`; rounds since then are made up when it is asked for."""

    balance: int
    paid: int


class DeficitAccounts:
    """Balances in micro-units, in `(-U, Q]`. A round gives one quantum to every client that has no credit.

    Of more than `most_idle` idle clients the one idle longest is forgotten. What credit it had is lost; its debt is
    remembered as a number for all clients without an account: they begin with the largest debt that was ever forgotten,
    less the rounds since. So nobody is better off for having been forgotten.
    """

    def __init__(self, quantum: int, most_idle: int = MOST_IDLE) -> None:
        self.quantum = quantum
        self.rounds = 0
        self._accounts: BoundedClientMap[str, DeficitAccount] = BoundedClientMap(most_idle)
        self._debt_until = 0  # rounds times quantum, when the largest forgotten debt will have been paid

    def __len__(self) -> int:
        return len(self._accounts)

    def balance(self, client: str) -> int:
        """q_i, also of a client without an account."""
        account = self._accounts.get(client)
        return min(0, self.rounds * self.quantum - self._debt_until) if account is None else self._refilled(account)

    def _refilled(self, account: DeficitAccount) -> int:
        balance = account.balance
        if balance > 0:
            return balance
        return balance + min(self.rounds - account.paid, self._needed(balance)) * self.quantum

    def charge(self, client: str, micro: int) -> None:
        """Lines 22 and 27, for a busy client."""
        account = self._accounts[client]
        account.balance = self._refilled(account) - micro
        account.paid = self.rounds

    def in_credit_after(self, client: str) -> int:
        """The round after which a client without credit has some."""
        return self.rounds + self._needed(self.balance(client))

    def _needed(self, balance: int) -> int:
        """n_i: rounds until credit."""
        return -balance // self.quantum + 1

    def advance(self, rounds: int) -> None:
        """So many rounds at once; the caller sees to it that no earlier one gave a queued client credit."""
        self.rounds += rounds

    def busy(self, client: str) -> None:
        """`client` waits or runs."""
        if client not in self._accounts:
            self._accounts[client] = DeficitAccount(self.balance(client), self.rounds)
        self._accounts.activate(client)

    def idle(self, client: str) -> None:
        """`client` neither waits nor runs."""
        forgotten = self._accounts.rest(client)
        if forgotten is not None:
            self._debt_until = max(self._debt_until, self.rounds * self.quantum - self._refilled(forgotten))

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        self._accounts.check_invariants()
        for client in self._accounts:
            balance = self.balance(client)
            assert balance <= self.quantum, f"{client}: balance {balance} above the quantum {self.quantum}"

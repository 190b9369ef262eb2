"""Deficit accounts (DLPM Algorithm 1, lines 3-8), refilled lazily: a refill takes O(1) for any number of clients."""

from dataclasses import dataclass

from serving.bounded_client_map import MOST_IDLE, BoundedClientMap


@dataclass(slots=True)
class DeficitAccount:
    """The balance of a client after round `paid`; later rounds are added when the balance is read."""

    balance: int
    paid: int


class DeficitAccounts:
    """Balances in micro-units, in `(-U, Q]`. A round adds one quantum to each balance that is not positive.

    Of the idle clients only the `most_idle` that became idle last keep an account. The credit of a forgotten client is
    lost. Debts are kept as one number: a client without an account begins with the largest debt that was ever
    forgotten, less the rounds since. So no client gains by being forgotten.
    """

    def __init__(self, quantum: int, most_idle: int = MOST_IDLE) -> None:
        self.quantum = quantum
        self.rounds = 0
        self._accounts: BoundedClientMap[str, DeficitAccount] = BoundedClientMap(most_idle)
        self._debt_until = 0  # value of rounds * quantum at which the largest forgotten debt is paid

    def __len__(self) -> int:
        return len(self._accounts)

    def balance(self, client: str) -> int:
        """Return q_i in micro-units, also for a client without an account."""
        account = self._accounts.get(client)
        return min(0, self.rounds * self.quantum - self._debt_until) if account is None else self._refilled(account)

    def _refilled(self, account: DeficitAccount) -> int:
        rounds = min(self.rounds - account.paid, self._needed(account.balance))
        return account.balance + rounds * self.quantum

    def charge(self, client: str, micro: int) -> None:
        """Subtract `micro` micro-units from the balance of a busy client (lines 22 and 27)."""
        account = self._accounts[client]
        account.balance = self._refilled(account) - micro
        account.paid = self.rounds

    def in_credit_after(self, client: str) -> int:
        """Return the round after which a client without credit has some."""
        return self.rounds + self._needed(self.balance(client))

    def _needed(self, balance: int) -> int:
        """Return n_i, the number of rounds after which `balance`, at most the quantum, is positive."""
        return -balance // self.quantum + 1

    def advance(self, rounds: int) -> None:
        """Apply `rounds` refills at once; the caller ensures that no earlier one would give a queued client credit."""
        self.rounds += rounds

    def busy(self, client: str) -> None:
        """Record that `client` has requests waiting or running; open an account if it has none."""
        if client not in self._accounts:
            self._accounts[client] = DeficitAccount(self.balance(client), self.rounds)
        self._accounts.activate(client)

    def idle(self, client: str) -> None:
        """Record that `client` has no requests; forget the longest idle account if there are too many."""
        forgotten = self._accounts.rest(client)
        if forgotten is not None:
            self._debt_until = max(self._debt_until, self.rounds * self.quantum - self._refilled(forgotten))

    def check_invariants(self) -> None:
        """Raise AssertionError when a balance exceeds the quantum."""
        self._accounts.check_invariants()
        for client in self._accounts:
            balance = self.balance(client)
            assert balance <= self.quantum, f"{client}: balance {balance} above the quantum {self.quantum}"

"""Deficit accounts (DLPM Algorithm 1, lines 3-8), refilled lazily: a refill is O(1) however many clients there are."""

from collections import OrderedDict

# Idle clients that are remembered. Beyond that those without debt go, the longest idle first: that only removes credit.
MOST_IDLE = 100_000
IDLE_CHECKED = 2


class DeficitAccounts:
    """Balances in micro-units, in `(-U, Q]`. A round gives one quantum to every client that has no credit.

    A balance is stored with the round up to which it was refilled; rounds since then are made up when it is asked for.
    """

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self._balances: dict[str, int] = {}
        self._paid: dict[str, int] = {}  # client -> rounds in its balance
        self._idle: OrderedDict[str, None] = OrderedDict()
        self.rounds = 0

    def balance(self, client: str) -> int:
        """q_i; 0 for a client that is not known."""
        balance = self._balances.get(client, 0)
        if balance > 0 or client not in self._paid:
            return balance
        return balance + min(self.rounds - self._paid[client], self._needed(balance)) * self.quantum

    def charge(self, client: str, micro: int) -> None:
        """Lines 22 and 27."""
        self._balances[client] = self.balance(client) - micro
        self._paid[client] = self.rounds

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
        self._balances[client] = self.balance(client)
        self._paid[client] = self.rounds
        self._idle.pop(client, None)

    def idle(self, client: str) -> None:
        """`client` neither waits nor runs. Debtors are kept until their rounds have paid."""
        self._idle[client] = None
        for _ in range(min(IDLE_CHECKED, len(self._idle) - MOST_IDLE)):
            oldest, _ = self._idle.popitem(last=False)
            if self.balance(oldest) < 0:
                self._idle[oldest] = None
            else:
                del self._balances[oldest], self._paid[oldest]

    def known(self) -> list[str]:
        """Every client with an account."""
        return list(self._balances)

"""The ledger of budgets that processes share: the rules of `throttler/budget_script.py`, in Python.

Each process writes one entry per account and never another's: what it booked in each slot, as absolute amounts, and
what it holds, which it may book without asking. The entry counts both, so all processes together never book more than
the limit, whatever is delayed or dies. Entries have versions: whoever has read them can write them back into a ledger
that has lost its data, in any order and any number of times. A process that dies loses what it held, one lease, until
its entry leaves the window.
"""

from collections.abc import Mapping
from typing import NamedTuple

from throttler.core.budget import BudgetAccount

PARTS = 16  # a lease is this part of what is left, divided by the number of processes that use the account


class BudgetEntry(NamedTuple):
    """One process' entry: `at` is the slot in which it was written, from which on `held` counts."""

    version: int
    at: int
    held: int
    slots: Mapping[int, int]

    def text(self) -> str:
        slots = ",".join(f"{slot}:{amount}" for slot, amount in self.slots.items())
        return f"{self.version};{self.at};{self.held};{slots}"

    def amounts(self, first: int) -> dict[int, int]:
        """Return what counts from the slot `first` on, what is held included."""
        counted = {slot: amount for slot, amount in self.slots.items() if slot >= first}
        if self.at >= first and self.held:
            counted[self.at] = counted.get(self.at, 0) + self.held
        return counted


def entry_of(text: str) -> BudgetEntry:
    """Return the entry of which `text` is what is stored; raise ValueError if it is none."""
    version, at, held, slots = text.split(";")
    pairs = (pair.split(":") for pair in slots.split(",") if pair)
    return BudgetEntry(int(version), int(at), int(held), {int(slot): int(amount) for slot, amount in pairs})


class BudgetRequest(NamedTuple):
    """What a process tells the ledger: its `entry`, whose `held` it keeps in any case, and the lease that it needs.

    `need` is 0 in a report. `first` is the oldest slot in the window, and `spent` belongs to the process alone.
    """

    account: BudgetAccount
    first: int
    entry: BudgetEntry
    need: int
    spent: int


class BudgetReply(NamedTuple):
    """What the process may book from now on, and the other processes' entries, as they are stored.

    `recalled` means that others hold what it needs and were asked to give it back; `settles_in` are the seconds until
    all have written what they know into a ledger that has lost its data, and it grants again.
    """

    granted: int
    recalled: bool
    others: Mapping[str, str]
    settles_in: float = 0.0


class BudgetLedger:
    """The entries of all accounts, by process."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, BudgetEntry]] = {}

    def ask(self, process: str, request: BudgetRequest) -> BudgetReply:
        """Write the entry of `process`; grant what it needs, and more to spare it requests, or else what it holds."""
        entries = self.entries.setdefault(request.account.key, {})
        first, mine = request.first, request.entry
        taken = held = 0
        for name, entry in list(entries.items()):
            if name == process:
                continue
            if entry.at < first:
                del entries[name]
                continue
            held += entry.held
            taken += sum(entry.amounts(first).values())
        users = len(entries.keys() | {process})
        room = request.account.limit - taken - sum(amount for slot, amount in mine.slots.items() if slot >= first)
        granted = max(0, min(mine.held, room))
        if 0 < request.need <= room:
            granted = max(granted, request.need, room // (PARTS * users))
        entries[process] = mine._replace(held=granted)
        others = {name: entry.text() for name, entry in entries.items() if name != process}
        return BudgetReply(granted, request.need > granted and held > 0, others)

    def restore(self, key: str, process: str, entry: BudgetEntry) -> None:
        """Write an entry that was read earlier, unless a newer one is there."""
        entries = self.entries.setdefault(key, {})
        if process not in entries or entries[process].version < entry.version:
            entries[process] = entry

"""One client's balances at the workers of one pool, replenished lazily (DLPM Alg. 2, lines 4-6)."""


class Credit:
    """`q_{i,w}` by worker slot, in micro-units, never above the quantum Q^w.

    A round adds a quantum to every balance that is not positive; positive balances get none, so credit never
    accumulates at an unused worker. A balance is stored as its *due* round, in which it becomes positive again,
    and the part of the quantum that is spent by then. A round therefore costs O(1) and visits no worker. A worker that
    was never used has a full quantum.
    """

    __slots__ = ("_by_round", "_due", "_in_debt", "_quantum", "_round", "_spent")

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._round = 0
        self._due: dict[int, int] = {}
        self._spent: dict[int, int] = {}  # at the due round: 0 <= spent < quantum
        self._by_round: dict[int, int] = {}  # bitmask of workers by due round, for rounds later than the current one
        self._in_debt = 0

    def available(self, candidates: int) -> int:
        """Return the candidates with a positive balance (line 4), after the rounds that this needs (lines 5, 6)."""
        available = candidates & ~self._in_debt
        if available:
            return available
        self._round = min(due for due, workers in self._by_round.items() if workers & candidates)
        for due in [due for due in self._by_round if due <= self._round]:
            self._in_debt &= ~self._by_round.pop(due)
        return candidates & ~self._in_debt

    def charge(self, slot: int, micro: int) -> None:
        """Charge `micro` (lines 16 and 22); a negative charge is a refund, clamped to a balance of one quantum."""
        self._unschedule(slot)
        due = max(self._round, self._due.get(slot, self._round))
        rounds, spent = divmod(self._spent.get(slot, 0) + micro, self._quantum)
        due += rounds
        if due < self._round:
            due, spent = self._round, 0
        self._due[slot], self._spent[slot] = due, spent
        if due > self._round:
            self._by_round[due] = self._by_round.get(due, 0) | 1 << slot
            self._in_debt |= 1 << slot

    def balance(self, slot: int) -> int:
        """Return `q_{i,w}` at `slot`, in micro-units."""
        waits = max(0, self._due.get(slot, self._round) - self._round)
        return self._quantum - self._spent.get(slot, 0) - waits * self._quantum

    def forget(self, slot: int) -> None:
        """Reset the balance at `slot` to a full quantum for the slot's next worker."""
        self._unschedule(slot)
        self._due.pop(slot, None)
        self._spent.pop(slot, None)

    def _unschedule(self, slot: int) -> None:
        bit = 1 << slot
        if self._in_debt & bit:
            due = self._due[slot]
            self._by_round[due] &= ~bit
            if not self._by_round[due]:
                del self._by_round[due]
            self._in_debt &= ~bit

    def check_invariants(self) -> None:
        assert self._due.keys() == self._spent.keys(), "balances and due rounds of different workers"
        for slot, spent in self._spent.items():
            assert 0 <= spent < self._quantum, f"slot {slot}: {spent} spent of {self._quantum}"
            owes = self._due[slot] > self._round
            assert owes == bool(self._in_debt >> slot & 1), f"slot {slot}: due {self._due[slot]} in {self._round}"
            assert not owes or self._by_round[self._due[slot]] >> slot & 1, f"slot {slot} waits for no round"
        scheduled = sum(workers.bit_count() for workers in self._by_round.values())
        assert scheduled == self._in_debt.bit_count(), f"{scheduled} workers wait for rounds"

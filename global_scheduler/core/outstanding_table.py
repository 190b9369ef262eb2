"""Queue sizes of workers (the paper's `s_w`), with the shortest among any set of workers found without a scan."""

# A queue as long as the worker's capacity is so many units. Lengths up to 256 units keep their resolution, longer ones
# a relative one of 1/128: which of two queues of thousands is shorter by one does not matter.
UNITS = 64
EXACT_BITS = 8
# Below so many workers, asking each is quicker than going through the levels.
FEW = 8


def level(length: int, capacity: int) -> int:
    """`length / capacity`, quantised; monotone in it."""
    units = length * UNITS // capacity
    shift = max(0, units.bit_length() - EXACT_BITS)
    return (shift << EXACT_BITS) + (units >> shift)


class OutstandingTable:
    """Workers by slot; sets of workers are bitmasks."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._capacities: dict[int, int] = {}
        self._levels: dict[int, int] = {}
        self._at: dict[int, int] = {}  # level -> the workers there
        self._occupied = 0  # bit per level

    def join(self, slot: int, capacity: int) -> None:
        """A new worker, with nothing to do; `capacity` in requests that run at once."""
        self._lengths[slot], self._capacities[slot] = 0, capacity
        self._put(slot, 0)

    def leave(self, slot: int) -> None:
        """The worker is gone."""
        self._take(slot)
        del self._lengths[slot], self._capacities[slot], self._levels[slot]

    def length(self, slot: int) -> int:
        """`s_w`."""
        return self._lengths[slot]

    def load(self, slot: int) -> tuple[int, int]:
        """`s_w` and the capacity."""
        return self._lengths[slot], self._capacities[slot]

    def is_full(self, slot: int) -> bool:
        """Whether one more request would have to wait for a place in the batch."""
        length, capacity = self.load(slot)
        return length >= capacity

    def outgrows(self, slot: int, other: int) -> bool:
        """Whether the queue, per capacity, is more than 1.5 times the other's with one more request in it."""
        (length, capacity), (other_length, other_capacity) = self.load(slot), self.load(other)
        return 2 * length * other_capacity > 3 * (other_length + 1) * capacity

    def add(self, slot: int, requests: int) -> None:
        """The queue grows, or shrinks."""
        length = self._lengths[slot] = self._lengths[slot] + requests
        at = level(length, self._capacities[slot])
        if at != self._levels[slot]:
            self._take(slot)
            self._put(slot, at)

    def least(self, workers: int) -> int:
        """`argmin s_w / capacity` over `workers`, not empty; of equal ones the lowest slot."""
        if workers.bit_count() <= FEW:
            return min(slots(workers), key=self._levels.__getitem__)
        occupied = self._occupied
        while occupied:
            lowest = occupied & -occupied
            found = workers & self._at[lowest.bit_length() - 1]
            if found:
                return (found & -found).bit_length() - 1
            occupied ^= lowest
        raise ValueError(f"no worker in {workers:b} has a queue")

    def _put(self, slot: int, at: int) -> None:
        self._levels[slot] = at
        self._at[at] = self._at.get(at, 0) | 1 << slot
        self._occupied |= 1 << at

    def _take(self, slot: int) -> None:
        at = self._levels[slot]
        self._at[at] &= ~(1 << slot)
        if not self._at[at]:
            del self._at[at]
            self._occupied &= ~(1 << at)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for slot, length in self._lengths.items():
            assert length >= 0, f"slot {slot}: {length} requests"
            expected = level(length, self._capacities[slot])
            assert self._levels[slot] == expected, f"slot {slot}: level {self._levels[slot]}, not {expected}"
            assert self._at[expected] >> slot & 1, f"slot {slot} is missing from its level"
        assert sum(mask.bit_count() for mask in self._at.values()) == len(self._lengths), "a slot is in two levels"
        assert self._occupied == sum(1 << at for at in self._at), f"occupied {self._occupied:b}"


def slots(workers: int) -> list[int]:
    """The slots in a mask, lowest first."""
    found = []
    while workers:
        lowest = workers & -workers
        found.append(lowest.bit_length() - 1)
        workers ^= lowest
    return found

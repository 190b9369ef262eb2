"""Outstanding requests of each worker (the paper's `s_w`), with a search for the least loaded that needs no scan."""

from bisect import bisect_left, insort

# A queue as long as the worker's capacity measures UNITS, so that one request counts at any capacity up to so many.
UNITS = 1 << 16
# Levels tell apart what differs by 1 in 256: queues of one worker up to 256 requests exactly. A difference of one does
# not matter between queues of thousands.
PRECISION = 9  # bits
# Up to this number of workers, comparing each is faster than walking the levels.
FEW = 8


def level(length: int, capacity: int) -> int:
    """Return `length / capacity`, quantised; the result is monotone in the quotient."""
    units = length * UNITS // capacity
    shift = units.bit_length() - PRECISION
    return units if shift <= 0 else (shift << PRECISION - 1) + (units >> shift)


class OutstandingTable:
    """Number of outstanding requests and capacity of each worker, by slot; a set of workers is a bitmask."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._capacities: dict[int, int] = {}
        self._levels: dict[int, int] = {}
        self._at: dict[int, int] = {}  # bitmask of workers by level
        self._occupied: list[int] = []  # the levels that have workers, the lowest first

    def join(self, slot: int, capacity: int) -> None:
        """Add a worker without requests; `capacity` is the number of requests that it runs at once."""
        self._lengths[slot], self._capacities[slot] = 0, capacity
        self._put(slot, 0)

    def leave(self, slot: int) -> None:
        """Remove a worker."""
        self._take(slot)
        del self._lengths[slot], self._capacities[slot], self._levels[slot]

    def length(self, slot: int) -> int:
        """Return `s_w`, the worker's outstanding requests."""
        return self._lengths[slot]

    def load(self, slot: int) -> tuple[int, int]:
        """Return `s_w` and the capacity, both in requests."""
        return self._lengths[slot], self._capacities[slot]

    def is_full(self, slot: int) -> bool:
        """Return whether one more request would have to wait for a place in the batch."""
        return self._lengths[slot] >= self._capacities[slot]

    def outgrows(self, slot: int, other: int) -> bool:
        """Return whether the queue over capacity exceeds 1.5 times the other's after one more request there."""
        (length, capacity), (other_length, other_capacity) = self.load(slot), self.load(other)
        return 2 * length * other_capacity > 3 * (other_length + 1) * capacity

    def add(self, slot: int, requests: int) -> None:
        """Add `requests`, which may be negative, to the worker's outstanding requests."""
        length = self._lengths[slot] = self._lengths[slot] + requests
        at = level(length, self._capacities[slot])
        if at != self._levels[slot]:
            self._take(slot)
            self._put(slot, at)

    def least(self, workers: int) -> int:
        """Return `argmin s_w / capacity` over `workers`, which must not be empty; the lowest slot wins ties."""
        count = workers.bit_count()
        if count == 1:
            return workers.bit_length() - 1
        if count <= FEW:
            return min(slots(workers), key=self._levels.__getitem__)
        for at in self._occupied:
            found = workers & self._at[at]
            if found:
                return (found & -found).bit_length() - 1
        raise ValueError(f"no worker in {workers:b} has a queue")

    def _put(self, slot: int, at: int) -> None:
        self._levels[slot] = at
        if at in self._at:
            self._at[at] |= 1 << slot
        else:
            self._at[at] = 1 << slot
            insort(self._occupied, at)

    def _take(self, slot: int) -> None:
        at = self._levels[slot]
        self._at[at] ^= 1 << slot
        if not self._at[at]:
            del self._at[at]
            del self._occupied[bisect_left(self._occupied, at)]

    def check_invariants(self) -> None:
        for slot, length in self._lengths.items():
            assert length >= 0, f"slot {slot}: {length} requests"
            expected = level(length, self._capacities[slot])
            assert self._levels[slot] == expected, f"slot {slot}: level {self._levels[slot]}, not {expected}"
            assert self._at[expected] >> slot & 1, f"slot {slot} is missing from its level"
        assert sum(mask.bit_count() for mask in self._at.values()) == len(self._lengths), "a slot is in two levels"
        assert self._occupied == sorted(self._at), f"occupied {self._occupied}, workers at {sorted(self._at)}"


def slots(workers: int) -> list[int]:
    """Return the slots in a bitmask, lowest first."""
    found = []
    while workers:
        lowest = workers & -workers
        found.append(lowest.bit_length() - 1)
        workers ^= lowest
    return found

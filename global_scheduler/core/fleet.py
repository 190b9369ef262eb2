"""The workers attached to the scheduler."""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

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
    """Number of outstanding requests (the paper's `s_w`) and capacity of each worker, by slot.

    The search for the least loaded needs no scan. A set of workers is a bitmask.
    """

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._capacities: dict[int, int] = {}
        self._levels: dict[int, int] = {}
        self._at: dict[int, int] = {}  # bitmask of workers by level
        self._occupied: list[int] = []  # the levels that have workers, the lowest first

    def join(self, slot: int, capacity: int) -> None:
        """Add a worker without requests; `capacity` is the number of requests that it runs at once."""
        self._lengths[slot], self._capacities[slot] = 0, capacity
        self._move(slot, 0)

    def leave(self, slot: int) -> None:
        """Remove a worker."""
        self._move(slot, None)
        del self._lengths[slot], self._capacities[slot]

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
            self._move(slot, at)

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

    def _move(self, slot: int, at: int | None) -> None:
        """Put a worker at the level `at`, and away from the one where it was; None: it has none."""
        before = self._levels.pop(slot, None)
        if before is not None:
            self._at[before] ^= 1 << slot
            if not self._at[before]:
                del self._at[before]
                del self._occupied[bisect_left(self._occupied, before)]
        if at is not None:
            self._levels[slot] = at
            if at not in self._at:
                self._at[at] = 0
                insort(self._occupied, at)
            self._at[at] |= 1 << slot

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
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


STEP_TIMEOUT = 30.0  # seconds without an engine step after which a worker gets no requests


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """A worker as it describes itself when it attaches. All models that it serves share its KV cache and its batch."""

    worker: str
    instance: str
    address: str
    revisions: Mapping[str, str]  # by model name; empty where the worker reports no revision
    block_tokens: int
    kv_tokens: int
    max_running: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker's load as of its latest report.

    `kv_tokens_used` counts the KV cache tokens that running requests reference. `stalled_seconds` is the time since the
    last engine step while the worker has requests.
    """

    running: int = 0
    waiting: int = 0
    kv_tokens_used: int = 0
    queue_seconds: float = 0.0
    draining: bool = False
    stalled_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Member:
    """One worker while it is attached. `slot` is its bit in bitmasks; `outstanding` is the paper's `s_w`.

    `foreign_requests` are those of callers that this scheduler does not know, `background` those of the outstanding
    ones that take only what no interactive request wants.
    """

    slot: int
    identity: WorkerIdentity
    reported_at: float
    load: WorkerLoad = field(default_factory=WorkerLoad)
    outstanding: int = 0
    background: int = 0
    foreign_requests: int = 0


class Fleet:
    """The attached workers by name and slot; a set of them is a bitmask. A member is in the pool of each of its models.

    A member is stale, and must be removed, when it has sent no report for more than `stall_timeout` seconds. A member
    that reports no engine step for `step_timeout` seconds stays attached, since it may recover, but gets no requests.
    """

    def __init__(self, stall_timeout: float, step_timeout: float = STEP_TIMEOUT) -> None:
        self._stall_timeout = stall_timeout
        self._step_timeout = step_timeout
        self.queues = OutstandingTable()  # without background requests, which no interactive one waits for
        self._all_queues = OutstandingTable()
        self._behind = 0  # bitmask of members whose queue in `_all_queues` may be an earlier one
        self._members: dict[str, Member] = {}
        self._by_slot: dict[int, Member] = {}
        self._pools: dict[str, int] = {}  # bitmask of members by model name
        self._fresh: OrderedDict[Member, None] = OrderedDict()  # the member with the oldest report first
        self._available = 0  # fresh, not draining, making steps
        self.waiting = 0  # bitmask of members whose latest report has waiting requests

    def attach(self, identity: WorkerIdentity, now: float) -> Member:
        """Add a worker in the lowest free slot and return it; an earlier member of that name must have been removed."""
        assert identity.worker not in self._members, f"{identity.worker} is attached already"
        slot = next(slot for slot in range(len(self._members) + 1) if slot not in self._by_slot)
        member = self._members[identity.worker] = self._by_slot[slot] = Member(slot, identity, now)
        for model in identity.revisions:
            self._pools[model] = self._pools.get(model, 0) | 1 << slot
        for table in (self.queues, self._all_queues):
            table.join(slot, identity.max_running)
        self.reported(member, member.load, now)
        return member

    def remove(self, member: Member) -> None:
        """Remove a member and free its slot."""
        bit = 1 << member.slot
        del self._members[member.identity.worker], self._by_slot[member.slot]
        for model in member.identity.revisions:
            self._pools[model] &= ~bit
            if not self._pools[model]:
                del self._pools[model]
        self._fresh.pop(member, None)
        self._available &= ~bit
        self.waiting &= ~bit
        self._behind &= ~bit
        for table in (self.queues, self._all_queues):
            table.leave(member.slot)

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        """Record the worker's load; a report of a removed member changes nothing."""
        if not self.is_current(member):
            return
        member.load, member.reported_at = load, now
        self._fresh[member] = None
        self._fresh.move_to_end(member)
        bit = 1 << member.slot
        self._available = self._available | bit if self._is_available(member) else self._available & ~bit
        self.waiting = self.waiting | bit if load.waiting else self.waiting & ~bit

    def _is_available(self, member: Member) -> bool:
        return member in self._fresh and not member.load.draining and not self._makes_no_steps(member)

    def _makes_no_steps(self, member: Member) -> bool:
        return member.load.stalled_seconds > self._step_timeout

    @property
    def all_queues(self) -> OutstandingTable:
        """The queues with background requests. Members' bookings enter when they are read, which only a background
        request does."""
        for slot in slots(self._behind):
            member = self._by_slot[slot]
            requests = member.outstanding + member.foreign_requests
            self._all_queues.add(slot, requests - self._all_queues.length(slot))
        self._behind = 0
        return self._all_queues

    def booked(self, member: Member, requests: int) -> None:
        """Add interactive `requests`, which may be negative, to the member's outstanding requests `s_w`."""
        member.outstanding += requests
        self._behind |= 1 << member.slot
        self.queues.add(member.slot, requests)

    def booked_below(self, member: Member, requests: int) -> None:
        """Add background `requests`, which may be negative, to the member's outstanding requests."""
        member.outstanding += requests
        member.background += requests
        self._behind |= 1 << member.slot

    def set_foreign_requests(self, member: Member, requests: int) -> None:
        """Count `requests` of unknown callers in the member's queue, in place of those so far."""
        self._behind |= 1 << member.slot
        self.queues.add(member.slot, requests - member.foreign_requests)
        member.foreign_requests = requests

    def find(self, worker: str) -> Member | None:
        """Return the member named `worker`, or None."""
        return self._members.get(worker)

    def at(self, slot: int) -> Member:
        return self._by_slot[slot]

    def is_current(self, member: Member) -> bool:
        """Return whether this attachment is still in use; a worker that attached again has a new one."""
        return self._members.get(member.identity.worker) is member

    def live(self, now: float) -> list[Member]:
        """Return the members that report in time and make engine steps, by slot."""
        self._expire(now)
        limit = self._step_timeout
        return sorted((m for m in self._fresh if m.load.stalled_seconds <= limit), key=attrgetter("slot"))

    def stale(self, now: float) -> list[Member]:
        """Return the members without a report for more than `stall_timeout` seconds, by slot."""
        self._expire(now)
        if len(self._fresh) == len(self._by_slot):
            return []
        return [member for _, member in sorted(self._by_slot.items()) if member not in self._fresh]

    def candidates(self, model: str, excluded: Collection[str], now: float) -> int:
        """Return the bitmask of members that may take a request of `model`: live, not draining, not excluded."""
        self._expire(now)
        candidates = self._pools.get(model, 0) & self._available
        for slot, member in self._by_slot.items() if excluded else ():
            if member.identity.instance in excluded:
                candidates &= ~(1 << slot)
        return candidates

    def _expire(self, now: float) -> None:
        while self._fresh:
            silent = next(iter(self._fresh))
            if now - silent.reported_at <= self._stall_timeout:
                return
            del self._fresh[silent]
            self._available &= ~(1 << silent.slot)

    def check_invariants(self) -> None:
        self.queues.check_invariants()
        self.all_queues.check_invariants()
        assert len(self._by_slot) == len(self._members), "a slot is given twice"
        pools: dict[str, int] = {}
        for name, member in self._members.items():
            assert member.identity.worker == name, f"{member.identity.worker} is kept as {name}"
            assert self._by_slot[member.slot] is member, f"{name} is not in slot {member.slot}"
            length, requests = self.all_queues.length(member.slot), member.outstanding + member.foreign_requests
            assert requests == length, f"{name}: {requests} requests, a queue of {length}"
            length, requests = self.queues.length(member.slot), requests - member.background
            assert requests == length, f"{name}: {requests} interactive requests, a queue of {length}"
            for model in member.identity.revisions:
                pools[model] = pools.get(model, 0) | 1 << member.slot
            available = self._is_available(member)
            assert bool(member.load.waiting) == bool(self.waiting >> member.slot & 1), f"{name}: waiting"
            assert available == bool(self._available >> member.slot & 1), f"{name}: available is not {available}"
        taken = sum(1 << slot for slot in self._by_slot)
        assert not (self._available | self.waiting) & ~taken, "a free slot counts as available or waiting"
        assert pools == self._pools, f"pools {self._pools}, members {pools}"
        assert all(self.is_current(member) for member in self._fresh), "a member that is gone counts as fresh"

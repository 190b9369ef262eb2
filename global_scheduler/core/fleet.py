"""The workers attached to the scheduler."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from global_scheduler.core.outstanding_table import OutstandingTable


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What a worker says once, when it attaches. The models that it serves share its KV cache and its batch."""

    worker: str
    instance: str
    address: str
    revisions: Mapping[str, str]  # of each model, by its name; workers that do not say have one in common, empty
    block_tokens: int
    kv_tokens: int
    max_running: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What a worker says continually; `kv_tokens_used` are those referenced by running requests; `stalled_seconds`:
    since the last step, while there are requests."""

    running: int = 0
    waiting: int = 0
    kv_tokens_used: int = 0
    queue_seconds: float = 0.0
    draining: bool = False
    stalled_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Member:
    """One attachment of one worker. `slot` is its bit in masks, `outstanding` is the paper's `s_w`."""

    slot: int
    identity: WorkerIdentity
    reported_at: float
    load: WorkerLoad = field(default_factory=WorkerLoad)
    outstanding: int = 0


class Fleet:
    """Members by name and slot; sets of them are bitmasks by slot. A member is in the pool of each of its models.

    A member is stale, and to be given up, once it has been silent for more than `stall_timeout` seconds. One that says
    that its requests have made no step for `step_timeout` seconds stays, in case it recovers, but counts as absent.
    """

    def __init__(self, stall_timeout: float, step_timeout: float = 30.0) -> None:
        self._stall_timeout = stall_timeout
        self._step_timeout = step_timeout
        self.queues = OutstandingTable()
        self._members: dict[str, Member] = {}
        self._by_slot: dict[int, Member] = {}
        self._pools: dict[str, int] = {}  # model -> its members
        self._fresh: OrderedDict[Member, None] = OrderedDict()  # longest silent first
        self._available = 0  # fresh, not draining, making steps
        self.waiting = 0  # members that have requests waiting, by their last word

    def attach(self, identity: WorkerIdentity, now: float) -> Member:
        """A new member in the lowest free slot; an earlier one of that name must have been removed."""
        assert identity.worker not in self._members, f"{identity.worker} is attached already"
        slot = next(slot for slot in range(len(self._members) + 1) if slot not in self._by_slot)
        member = self._members[identity.worker] = self._by_slot[slot] = Member(slot, identity, now)
        for model in identity.revisions:
            self._pools[model] = self._pools.get(model, 0) | 1 << slot
        self.queues.join(slot, identity.max_running)
        self.reported(member, member.load, now)
        return member

    def remove(self, member: Member) -> None:
        """The member's slot becomes free."""
        bit = 1 << member.slot
        del self._members[member.identity.worker], self._by_slot[member.slot]
        for model in member.identity.revisions:
            self._pools[model] &= ~bit
            if not self._pools[model]:
                del self._pools[model]
        self._fresh.pop(member, None)
        self._available &= ~bit
        self.waiting &= ~bit
        self.queues.leave(member.slot)

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        """The worker's load; nothing when the member has been removed."""
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

    def booked(self, member: Member, requests: int) -> None:
        """`s_w` changes by so many requests."""
        member.outstanding += requests
        self.queues.add(member.slot, requests)

    def find(self, worker: str) -> Member | None:
        """The member of that name."""
        return self._members.get(worker)

    def at(self, slot: int) -> Member:
        """The member in a slot."""
        return self._by_slot[slot]

    def is_current(self, member: Member) -> bool:
        """Whether this attachment still stands; a worker that came back has another."""
        return self._members.get(member.identity.worker) is member

    def live(self, now: float) -> list[Member]:
        """Members that are there and make steps, by slot."""
        self._expire(now)
        return sorted((m for m in self._fresh if not self._makes_no_steps(m)), key=lambda m: m.slot)

    def stale(self, now: float) -> list[Member]:
        """Members that have been silent for too long, by slot."""
        self._expire(now)
        return [member for _, member in sorted(self._by_slot.items()) if member not in self._fresh]

    def candidates(self, model: str, excluded: Collection[str], now: float) -> int:
        """Who may take a request of `model`: live, not draining, its instance not excluded."""
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
        """Raises AssertionError."""
        self.queues.check_invariants()
        assert len(self._by_slot) == len(self._members), "a slot is given twice"
        pools: dict[str, int] = {}
        for name, member in self._members.items():
            assert member.identity.worker == name, f"{member.identity.worker} is kept as {name}"
            assert self._by_slot[member.slot] is member, f"{name} is not in slot {member.slot}"
            length = self.queues.length(member.slot)
            assert member.outstanding == length, f"{name}: {member.outstanding} outstanding, a queue of {length}"
            for model in member.identity.revisions:
                pools[model] = pools.get(model, 0) | 1 << member.slot
            available = self._is_available(member)
            assert bool(member.load.waiting) == bool(self.waiting >> member.slot & 1), f"{name}: waiting"
            assert available == bool(self._available >> member.slot & 1), f"{name}: available is not {available}"
        assert pools == self._pools, f"pools {self._pools}, members {pools}"
        assert all(self.is_current(member) for member in self._fresh), "a member that is gone counts as fresh"

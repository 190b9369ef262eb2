"""The workers attached to the scheduler."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker says once, when it attaches."""

    worker: str
    instance: str
    address: str
    model: str
    block_tokens: int
    kv_tokens: int
    max_running: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker says continually; `kv_tokens_used` are those referenced by running requests."""

    running: int = 0
    waiting: int = 0
    kv_tokens_used: int = 0
    queue_seconds: float = 0.0
    draining: bool = False


@dataclass(slots=True, eq=False)
class Member:
    """One attachment of one worker. `slot` is its bit in masks, `outstanding` is the paper's `s_w`."""

    slot: int
    identity: Identity
    reported_at: float
    load: Load = field(default_factory=Load)
    outstanding: int = 0


class Fleet:
    """Members by name. One that has not reported for more than `stall_timeout` seconds is stale: no candidate."""

    def __init__(self, stall_timeout: float) -> None:
        self._stall_timeout = stall_timeout
        self._members: dict[str, Member] = {}

    def attach(self, identity: Identity, now: float) -> Member:
        """A new member in the lowest free slot; an earlier one of that name must have been removed."""
        assert identity.worker not in self._members, f"{identity.worker} is attached already"
        taken = [member.slot for member in self._members.values()]
        slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        member = self._members[identity.worker] = Member(slot, identity, now)
        return member

    def remove(self, member: Member) -> None:
        """The member's slot becomes free."""
        del self._members[member.identity.worker]

    def find(self, worker: str) -> Member | None:
        """The member of that name."""
        return self._members.get(worker)

    def is_current(self, member: Member) -> bool:
        """Whether this attachment still stands; a worker that came back has another."""
        return self._members.get(member.identity.worker) is member

    def live(self, now: float) -> list[Member]:
        """Members that are not stale, by slot."""
        fresh = [m for m in self._members.values() if now - m.reported_at <= self._stall_timeout]
        return sorted(fresh, key=lambda m: m.slot)

    def candidates(self, model: str, excluded: Collection[str], now: float) -> list[Member]:
        """Who may take a request of `model`: live, not draining, not excluded; by slot."""
        return [
            m
            for m in self.live(now)
            if m.identity.model == model and not m.load.draining and m.identity.worker not in excluded
        ]

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        slots = sorted(m.slot for m in self._members.values())
        assert len(slots) == len(set(slots)), f"slots given twice: {slots}"
        for name, member in self._members.items():
            assert member.identity.worker == name, f"{member.identity.worker} is kept as {name}"
            assert member.outstanding >= 0, f"{name}: {member.outstanding} outstanding requests"

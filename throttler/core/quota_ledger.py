"""Who holds how much of each limit: the rules that `throttler/lease_script.py` runs inside Redis, in Python.

A gateway that is older than a window and holds nothing by name counts as holding `limit / 2R`, which it may use without
asking; R are those gateways. While gateways come or go, this is no less than what it believes. Times are of one clock,
the ledger's, in any unit.
"""

from dataclasses import dataclass

from throttler.core.leased_quota import RECALL_AGAIN, LeaseReply, LeaseRequest


@dataclass(frozen=True, slots=True)
class _Entry:
    capacity: int
    used: int
    at: float


class QuotaLedger:
    """The shared state of gateways whose windows last `window`."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._beats: dict[str, float] = {}
        self._joined: dict[str, float] = {}
        self._entries: dict[str, dict[str, _Entry]] = {}  # account -> gateway -> entry
        self._recalled: dict[str, float] = {}

    def beat(self, gateway: str, now: float) -> int:
        """`gateway` is alive; returns how many were within the last window."""
        self._beats[gateway] = now
        self._joined.setdefault(gateway, now)
        for name in [name for name, at in self._beats.items() if at + self._window <= now]:
            del self._beats[name], self._joined[name]
        return len(self._beats)

    def ask(self, gateway: str, ask: LeaseRequest, gateways: int, now: float) -> LeaseReply:
        """Note what the gateway holds and used, and give it more if it wants and there is; see `room` below.

        `gateways`: how many it believes there are.
        """
        limit, window = ask.account.limit, self._window
        entries = self._entries.setdefault(ask.account.key, {})
        taken = 0
        for name, entry in list(entries.items()):
            if entry.at + 2 * window <= now:
                del entries[name]
            elif name != gateway:
                used = entry.used if entry.at + window > now else 0
                taken += max(entry.capacity, used)
        settled = [name for name, joined in self._joined.items() if joined + window <= now]
        quiet = sum(name != gateway and name not in entries for name in settled)
        unasked = quiet * (limit // (2 * max(1, len(settled))))
        room = limit - taken - unasked  # the most that this gateway may hold
        base = max(ask.held, ask.used)
        recalled = False
        if base < room:
            capacity = base + (max(1, (room - base) // (2 * gateways)) if ask.more else 0)
        else:
            capacity = max(0, min(ask.held, room))
            if (
                ask.more
                and taken + unasked > 0
                and self._recalled.get(ask.account.key, -window) + window * RECALL_AGAIN <= now
            ):
                self._recalled[ask.account.key] = now
                recalled = True
        entries[gateway] = _Entry(capacity, ask.used, now)
        return LeaseReply(capacity, recalled)

    def check_invariants(self) -> None:
        """Raise AssertionError when an entry is impossible."""
        for key, entries in self._entries.items():
            for gateway, entry in entries.items():
                assert entry.capacity >= 0, f"{key}: {gateway} holds {entry.capacity}"
                assert entry.used >= 0, f"{key}: {gateway} used {entry.used}"

"""The capacity of each limit that each gateway holds: the rules of `throttler/lease_script.py`, in Python.

A gateway that joined more than a window ago and has no entry for an account counts as holding `limit / 2R` of it, which
it may use without a request; R is the number of such gateways. While gateways join or leave, this is never less than
the part that the gateway itself assumes. All times are of the ledger's clock, in any unit.
"""

from dataclasses import dataclass

from throttler.core.leased_quota import RECALL_AGAIN, LeaseReply, LeaseRequest


@dataclass(frozen=True, slots=True)
class _Entry:
    capacity: int
    used: int
    at: float


class QuotaLedger:
    """The shared state of gateways; `window` is the duration of their windows."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._beats: dict[str, float] = {}
        self._joined: dict[str, float] = {}
        self._entries: dict[str, dict[str, _Entry]] = {}  # account -> gateway -> entry
        self._recalled: dict[str, float] = {}

    def beat(self, gateway: str, now: float) -> int:
        """Record a heartbeat of `gateway`; return the number of gateways with one in the last window."""
        self._beats[gateway] = now
        self._joined.setdefault(gateway, now)
        for name in [name for name, at in self._beats.items() if at + self._window <= now]:
            del self._beats[name], self._joined[name]
        return len(self._beats)

    def ask(self, gateway: str, ask: LeaseRequest, gateways: int, now: float) -> LeaseReply:
        """Record what the gateway holds and used; grant more if it requests more and capacity is left.

        `gateways` is the number of gateways that the gateway assumes.
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
        lacking = max(1, ask.used + ask.more - base)
        recalled = False
        if base + lacking <= room:
            capacity = base + (max(lacking, (room - base) // (2 * gateways)) if ask.more else 0)
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
        """Raise AssertionError if an entry has a negative capacity or use."""
        for key, entries in self._entries.items():
            for gateway, entry in entries.items():
                assert entry.capacity >= 0, f"{key}: {gateway} holds {entry.capacity}"
                assert entry.used >= 0, f"{key}: {gateway} used {entry.used}"

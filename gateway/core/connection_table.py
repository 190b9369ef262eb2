"""The connections of a listener: which of them go when there are too many, or when unread input takes too much memory.

What a stranger sends before it has shown a key costs memory, and so does a connection that asks nothing. Both have one
bound for all connections together. Above it the address that takes most gives way, its oldest connection first, so that
a single address cannot keep others out.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


@dataclass(slots=True)
class _Entry:
    address: str
    held: int = 0  # bytes
    is_idle: bool = True
    is_known: bool = False  # it has shown a key


class ConnectionTable(Generic[Connection]):
    """Bounds the number of connections by `most`, and the bytes that all of them hold by `most_held`."""

    def __init__(self, most: int, most_held: int) -> None:
        self._most = most
        self._most_held = most_held
        self._all_held = 0
        self._entries: dict[Connection, _Entry] = {}
        self._numbers: Counter[str] = Counter()  # of connections, by address
        self._held: Counter[str] = Counter()  # bytes, by address
        # By address, in the order in which they began to hold something, or became idle.
        self._holders: dict[str, dict[Connection, None]] = {}
        self._strangers: dict[str, dict[Connection, None]] = {}  # idle, without a key
        self._guests: dict[str, dict[Connection, None]] = {}  # idle, with a key

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, connection: Connection, address: str) -> Connection | None:
        """Add an idle connection. Return the one that has to go for it: itself, if all others are in use."""
        self._entries[connection] = _Entry(address)
        self._numbers[address] += 1
        victim = None
        if len(self._entries) > self._most:
            idle = self._strangers or self._guests
            victim = _oldest(idle, self._numbers) if idle else connection
        self._queue(self._strangers, address, connection)
        if victim is not None:
            self.use(victim)  # it goes once, however long that takes
        return victim

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        entry = self._entries[connection]
        if entry.held:
            self._set_held(connection, 0)
        if entry.is_idle:
            self.use(connection)
        del self._entries[connection]
        _subtract(self._numbers, entry.address, 1)

    def use(self, connection: Connection) -> None:
        """Note that the connection has asked something that is not answered yet."""
        entry = self._entries[connection]
        if entry.is_idle:
            entry.is_idle = False
            self._leave(self._guests if entry.is_known else self._strangers, entry.address, connection)

    def rest(self, connection: Connection, *, is_known: bool) -> None:
        """Note that the connection is idle; once known, because it has shown a key, it stays so."""
        entry = self._entries[connection]
        if entry.is_idle:
            self.use(connection)
        entry.is_idle, entry.is_known = True, entry.is_known or is_known
        self._queue(self._guests if entry.is_known else self._strangers, entry.address, connection)

    def hold(self, connection: Connection, size: int) -> list[Connection]:
        """Note that `size` bytes of the connection's input are unread. Return those that must give theirs up."""
        if size == self._entries[connection].held:
            return []
        self._set_held(connection, size)
        victims: list[Connection] = []
        while self._all_held > self._most_held:
            victims.append(_oldest(self._holders, self._held))
            self._set_held(victims[-1], 0)
        return victims

    def check_invariants(self) -> None:
        """Raise AssertionError if what is counted contradicts the entries."""
        held: Counter[str] = Counter()
        for entry in self._entries.values():
            held[entry.address] += entry.held
        assert self._held == +held, f"{self._held} counted of {held}"
        assert self._all_held == held.total() <= self._most_held, f"{self._all_held} bytes counted of {held.total()}"
        assert self._numbers == Counter(entry.address for entry in self._entries.values())
        for connection, entry in self._entries.items():
            queues = (self._holders, self._strangers, self._guests)
            places = tuple(connection in queue.get(entry.address, {}) for queue in queues)
            stranger, guest = entry.is_idle and not entry.is_known, entry.is_idle and entry.is_known
            assert places == (entry.held > 0, stranger, guest), f"{entry} is in {places}"

    def _set_held(self, connection: Connection, size: int) -> None:
        entry = self._entries[connection]
        address = entry.address
        self._all_held += size - entry.held
        _subtract(self._held, address, entry.held - size)
        if size and not entry.held:
            self._queue(self._holders, address, connection)
        elif entry.held and not size:
            self._leave(self._holders, address, connection)
        entry.held = size

    @staticmethod
    def _queue(queues: dict[str, dict[Connection, None]], address: str, connection: Connection) -> None:
        queues.setdefault(address, {})[connection] = None

    @staticmethod
    def _leave(queues: dict[str, dict[Connection, None]], address: str, connection: Connection) -> None:
        del queues[address][connection]
        if not queues[address]:
            del queues[address]


def _oldest(queues: dict[str, dict[Connection, None]], weights: Counter[str]) -> Connection:
    """Return the first of the address with the largest weight."""
    return next(iter(queues[max(queues, key=lambda address: weights[address])]))


def _subtract(counts: Counter[str], address: str, number: int) -> None:
    counts[address] -= number
    if not counts[address]:
        del counts[address]

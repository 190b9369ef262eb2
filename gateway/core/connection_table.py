"""The connections of a listener: which of them go when there are too many, or when unread input takes too much memory.

What a stranger sends before it has shown a key costs memory, and so does a connection that asks nothing. Both have one
bound for all connections together. Above it the address that takes most gives way, its oldest connection first, so that
a single address cannot keep others out.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Address(Generic[Connection]):
    """What the connections of one address take; the one that has been in a queue for longest comes first."""

    name: str
    connections: int = 0
    held: int = 0  # bytes
    holders: dict[Connection, None] = field(default_factory=dict)
    strangers: dict[Connection, None] = field(default_factory=dict)  # idle, without a key
    guests: dict[Connection, None] = field(default_factory=dict)  # idle, with a key


@dataclass(slots=True)
class _Entry(Generic[Connection]):
    address: _Address[Connection]
    idle: dict[Connection, None] | None = None  # the queue in which it is; None: it is in use
    held: int = 0  # bytes
    is_known: bool = False  # it has shown a key


class ConnectionTable(Generic[Connection]):
    """Bounds the number of connections by `most`, and the bytes that all of them hold by `most_held`."""

    def __init__(self, most: int, most_held: int) -> None:
        self._most = most
        self._most_held = most_held
        self._all_held = 0
        self._entries: dict[Connection, _Entry[Connection]] = {}
        self._addresses: dict[str, _Address[Connection]] = {}  # those that have connections

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, connection: Connection, address: str) -> Connection | None:
        """Add an idle connection. Return the one that has to go for it: itself, if all others are in use."""
        here = self._addresses.setdefault(address, _Address(address))
        here.connections += 1
        victim = None
        if len(self._entries) >= self._most:
            victim = self._longest_idle(connection)
        here.strangers[connection] = None
        self._entries[connection] = _Entry(here, here.strangers)
        if victim is not None:
            self.use(victim)  # it goes once, however long that takes
        return victim

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        entry = self._entries.pop(connection)
        address = entry.address
        for queue in (address.holders, address.strangers, address.guests):
            queue.pop(connection, None)
        self._all_held -= entry.held
        address.held -= entry.held
        address.connections -= 1
        if not address.connections:
            del self._addresses[address.name]

    def use(self, connection: Connection) -> None:
        """Note that the connection has asked something that is not answered yet."""
        entry = self._entries[connection]
        if entry.idle is not None:
            del entry.idle[connection]
            entry.idle = None

    def rest(self, connection: Connection, *, is_known: bool) -> None:
        """Note that the connection is idle; once known, because it has shown a key, it stays so."""
        entry = self._entries[connection]
        if entry.idle is not None:
            del entry.idle[connection]
        entry.is_known = entry.is_known or is_known
        entry.idle = entry.address.guests if entry.is_known else entry.address.strangers
        entry.idle[connection] = None

    def hold(self, connection: Connection, size: int) -> list[Connection]:
        """Note that `size` bytes of the connection's input are unread. Return those that must give theirs up."""
        self._set_held(connection, size)
        victims: list[Connection] = []
        while self._all_held > self._most_held:
            most = max([address for address in self._addresses.values() if address.holders], key=attrgetter("held"))
            victims.append(next(iter(most.holders)))
            self._set_held(victims[-1], 0)
        return victims

    def check_invariants(self) -> None:
        """Raise AssertionError if what is counted contradicts the entries."""
        held: Counter[str] = Counter()
        for entry in self._entries.values():
            held[entry.address.name] += entry.held
        counted = Counter({name: address.held for name, address in self._addresses.items()})
        assert counted == held, f"{counted} counted of {held}"
        assert self._all_held == held.total() <= self._most_held, f"{self._all_held} bytes counted of {held.total()}"
        numbers = Counter(entry.address.name for entry in self._entries.values())
        assert numbers == {name: address.connections for name, address in self._addresses.items()}
        for connection, entry in self._entries.items():
            queues = (entry.address.holders, entry.address.strangers, entry.address.guests)
            places = tuple(connection in queue for queue in queues)
            is_idle = entry.idle is not None
            right = (entry.held > 0, is_idle and not entry.is_known, is_idle and entry.is_known)
            assert places == right, f"{entry} is in {places}"
        queued = sum(len(each.holders) + len(each.strangers) + len(each.guests) for each in self._addresses.values())
        assert queued == sum((entry.held > 0) + (entry.idle is not None) for entry in self._entries.values())

    def _longest_idle(self, default: Connection) -> Connection:
        """Return the one that has been idle for longest at the address with most connections; strangers go first."""
        addresses = self._addresses.values()
        idle = [(each, each.strangers) for each in addresses if each.strangers]
        idle = idle or [(each, each.guests) for each in addresses if each.guests]
        return next(iter(max(idle, key=lambda each: each[0].connections)[1])) if idle else default

    def _set_held(self, connection: Connection, size: int) -> None:
        entry = self._entries[connection]
        more = size - entry.held
        if size and not entry.held:
            entry.address.holders[connection] = None
        elif entry.held and not size:
            del entry.address.holders[connection]
        entry.held = size
        entry.address.held += more
        self._all_held += more

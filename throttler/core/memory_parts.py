"""Parts of a pool's memory: what tenants and their users hold of it, and who of them waits for it.

The memory is divided by weight among the tenants that hold some or wait, and a tenant's part equally among such users
of it. Memory that is free goes to whoever comes, unless somebody waits who holds less than his part.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

LOOKED_AT = 32  # of those that wait; each of them held less than its part when it began to wait
MICRO = 1_000_000

Path = tuple[tuple[str, int], ...]  # names with weights, from the tenant down


@dataclass(slots=True, eq=False)
class _Party:
    weight: int
    held: int = 0
    waits_since: float = float("inf")
    waits_until: float = float("-inf")
    members: "MemoryParts | None" = None

    @property
    def is_present(self) -> bool:
        return self.held > 0 or self.waits_until > float("-inf")


@dataclass(slots=True, eq=False)
class MemoryParts:
    """What the members of one group hold. Weights are whole; `held` and the memory are in tokens."""

    held: int = 0
    _weight: int = 0  # of all present parties
    _parties: dict[str, _Party] = field(default_factory=dict)
    _waiting: dict[str, None] = field(default_factory=dict)  # by the time until which they wait

    def change(self, path: Path, tokens: int) -> None:
        """Add `tokens`, which may be negative, to what each party on the path holds."""
        self.held += tokens
        party = self._party(path[0])
        party.held += tokens
        if below := path[1:]:
            self._members(party).change(below, tokens)
        if not party.held:
            self._drop_absent(path[0][0])

    def wait(self, path: Path, memory: int, now: float, until: float) -> None:
        """Record that the parties on the path wait, as far as they hold less than their parts."""
        self._forget(now)
        name = path[0][0]
        party = self._party(path[0])
        if self._is_below(party, memory):
            self._waiting.pop(name, None)
            self._waiting[name] = None
            party.waits_since, party.waits_until = min(party.waits_since, now), until
        if below := path[1:]:
            self._members(party).wait(below, self._part(party, memory), now, until)
        self._drop_absent(name)

    def waited(self, name: str, now: float) -> float:
        """Return for how many seconds the party has waited; 0 for one that does not wait."""
        self._forget(now)
        party = self._parties.get(name)
        return 0.0 if party is None else max(0.0, now - party.waits_since)

    def got(self, path: Path) -> None:
        """Record that the parties on the path wait no longer."""
        party = self._parties.get(path[0][0])
        if party is not None:
            if party.members is not None and (below := path[1:]):
                party.members.got(below)
            self._stop_waiting(path[0][0])

    def must_yield(self, path: Path, memory: int, now: float) -> bool:
        """Return whether at a level of the path a sibling waits that is below its part, while the path's is not."""
        self._forget(now)
        name = path[0][0]
        party = self._parties.get(name)
        if party is None:
            return False
        if not self._is_below(party, memory) and any(
            self._is_below(self._parties[other], memory) for other in self._others(name)
        ):
            return True
        below = path[1:]
        return bool(below) and self._members(party).must_yield(below, self._part(party, memory), now)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when sums or waiting parties are impossible."""
        assert self._weight == sum(party.weight for party in self._parties.values()), f"{self._weight}"
        assert self.held == sum(party.held for party in self._parties.values()), f"{self.held}"
        last = float("-inf")
        for name in self._waiting:
            assert self._parties[name].waits_until >= last, f"{name} waits behind one that waits longer"
            last = self._parties[name].waits_until
        for name, party in self._parties.items():
            assert party.is_present, f"{name}: neither holds nor waits"
            assert party.held >= 0, f"{name}: {party.held} tokens"
            assert (name in self._waiting) == (party.waits_until > float("-inf")), f"{name}: waits in one place alone"
            if party.members is not None:
                assert party.members.held == party.held, f"{name}: {party.held} and {party.members.held}"
                party.members.check_invariants()

    def _party(self, step: tuple[str, int]) -> _Party:
        name, weight = step
        party = self._parties.get(name)
        if party is None:
            party = self._parties[name] = _Party(weight)
            self._weight += weight
        elif party.weight != weight:
            self._weight += weight - party.weight
            party.weight = weight
        return party

    def _members(self, party: _Party) -> "MemoryParts":
        if party.members is None:
            party.members = MemoryParts()
        return party.members

    def _is_below(self, party: _Party, memory: int) -> bool:
        return party.held * self._weight < memory * party.weight

    def _part(self, party: _Party, memory: int) -> int:
        return memory * party.weight // self._weight

    def _others(self, name: str) -> Iterator[str]:
        return (other for other in islice(self._waiting, LOOKED_AT) if other != name)

    def _forget(self, now: float) -> None:
        while self._waiting and self._parties[name := next(iter(self._waiting))].waits_until <= now:
            self._stop_waiting(name)

    def _stop_waiting(self, name: str) -> None:
        if name in self._waiting:
            del self._waiting[name]
            party = self._parties[name]
            party.waits_since, party.waits_until = float("inf"), float("-inf")
            self._drop_absent(name)

    def _drop_absent(self, name: str) -> None:
        party = self._parties[name]
        if not party.is_present:
            self._weight -= party.weight
            del self._parties[name]

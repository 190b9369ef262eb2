"""Parts of a pool's memory: what tenants and their users hold of it, and who of them waits for it.

The memory is divided by weight among the tenants that hold some or wait, and a tenant's part equally among such users
of it. Memory that is free goes to whoever comes, unless somebody waits who holds less than his part: to him before
those above theirs, and after FIRST_AFTER before all others. Small interactions, each of which fits, would otherwise
keep out one that is larger than what is ever free.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

FIRST_AFTER = 60.0  # seconds after which whoever has waited longest goes before all others
LOOKED_AT = 32  # of those that wait; each of them held less than its part when it began to wait
MICRO = 1_000_000

Path = tuple[tuple[str, int], ...]  # names with weights, from the tenant down


@dataclass(slots=True, eq=False)
class _Party:
    weight: int
    held: int = 0
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
    _since: dict[str, float] = field(default_factory=dict)  # when those that wait began to; the longest comes first

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
            self._since.setdefault(name, now)
            party.waits_until = until
        if below := path[1:]:
            self._members(party).wait(below, self._part(party, memory), now, until)
        self._drop_absent(name)

    def waited(self, name: str, now: float) -> float:
        """Return for how many seconds the party has waited; 0 for one that does not wait."""
        self._forget(now)
        return now - self._since.get(name, now)

    def got(self, path: Path) -> None:
        """Record that the parties on the path wait no longer."""
        party = self._parties.get(path[0][0])
        if party is not None:
            if party.members is not None and (below := path[1:]):
                party.members.got(below)
            self._stop_waiting(path[0][0])

    def must_yield(self, path: Path, memory: int, now: float) -> bool:
        """Return whether at a level of the path a sibling that is below its part goes first: the one that has waited
        longest, after FIRST_AFTER, or any that waits, if the path's is not below its own."""
        self._forget(now)
        name = path[0][0]
        party, longest = self._parties.get(name), next(iter(self._since), name)
        is_due = longest != name and now - self._since[longest] >= FIRST_AFTER
        if is_due and self._is_below(self._parties[longest], memory):
            return True
        if party is None:
            return False
        if not self._is_below(party, memory) and any(
            self._is_below(self._parties[other], memory) for other in self._others(name)
        ):
            return True
        below = path[1:]
        return bool(below) and self._members(party).must_yield(below, self._part(party, memory), now)

    def is_within(self, path: Path, tokens: int, memory: int, now: float) -> bool:
        """Return whether each party on the path would hold at most its part with `tokens` more."""
        self._forget(now)
        name, weight = path[0]
        party = self._parties.get(name)
        held, weights = (party.held, self._weight) if party else (0, self._weight + weight)
        if (held + tokens) * weights > memory * weight:
            return False
        if party is None or not (below := path[1:]):
            return True
        return self._members(party).is_within(below, tokens, memory * weight // weights, now)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when sums or waiting parties are impossible."""
        assert self._weight == sum(party.weight for party in self._parties.values()), f"{self._weight}"
        assert self.held == sum(party.held for party in self._parties.values()), f"{self.held}"
        assert self._since.keys() == self._waiting.keys(), f"{self._since} and {self._waiting}"
        assert list(self._since.values()) == sorted(self._since.values()), "one that waits longer comes later"
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
            del self._waiting[name], self._since[name]
            self._parties[name].waits_until = float("-inf")
            self._drop_absent(name)

    def _drop_absent(self, name: str) -> None:
        party = self._parties[name]
        if not party.is_present:
            self._weight -= party.weight
            del self._parties[name]

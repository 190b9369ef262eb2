"""Members in the order of keys that are read when needed, against sorting; and that entries do not pile up."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from serving.core.priority_queue import SPARE, PageRanks


@dataclass
class Account:
    name: str
    held: int

    @property
    def key(self) -> int:
        return -self.held


NAMES = "abcd"
# Name -> what it pays for from now on, or None to leave; and whether the ranks are told of a smaller amount.
ACTS = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 6), st.booleans()), max_size=60)


@given(ACTS)
def test_who_pays_most_comes_first_though_only_larger_amounts_are_told(
    acts: list[tuple[str, int | None, bool]],
) -> None:
    members = {name: Account(name, 0) for name in NAMES}
    ranks, here = PageRanks(members), set[str]()
    for name, held, is_told in acts:
        if held is None:
            ranks.discard(name)
            here.discard(name)
        else:
            has_more, members[name].held = held > members[name].held, held
            if has_more or is_told or name not in here:
                ranks.put(members[name])
                here.add(name)
        expected = sorted((members[each] for each in here), key=lambda member: (member.key, member.name))
        assert [*ranks] == expected
        assert ranks.first() == next(iter(expected), None)
        assert len(ranks.entries) == len(here)
        ranks.check_invariants()


def test_entries_of_earlier_amounts_are_let_go() -> None:
    class Key(int):
        """A key that counts how many of its kind somebody holds."""

        alive = 0

        def __new__(cls, key: int) -> "Key":
            cls.alive += 1
            return super().__new__(cls, key)

        def __del__(self) -> None:
            Key.alive -= 1

    class Counted(Account):
        @property
        def key(self) -> int:
            return Key(-self.held)

    members, most = {name: Counted(name, 0) for name in "ab"}, 0
    ranks = PageRanks(members)
    for held in range(200):
        for member in members.values():
            member.held = held
            ranks.put(member)
            most = max(most, Key.alive)
    assert most == 2 * 2 + SPARE + 1, "two for each member, the spare ones, and the new one"
    assert ranks.first() == members["a"]

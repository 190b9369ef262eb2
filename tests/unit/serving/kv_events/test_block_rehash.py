"""Our digests of an engine's blocks, against a naive record of every copy."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairlead.token_ids import pack_ids
from serving.blocks import chain, root_seed, unpack_digests
from serving.kv_events.core.block_rehash import BlockRehash

BLOCK = 4
TEXTS = st.lists(st.integers(0, 1), min_size=BLOCK, max_size=3 * BLOCK).map(
    lambda ids: ids[: len(ids) // BLOCK * BLOCK]
)
SCOPES = st.sampled_from(["", "a"])


def root(scope: str) -> int:
    return root_seed("secret", "model", scope)


def digests(text: list[int], scope: str = "") -> tuple[int, ...]:
    return unpack_digests(chain(pack_ids(text), BLOCK, root(scope)))


def names(text: list[int], scope: str) -> list[bytes]:
    """An engine's names: of the whole prefix, like its hashes."""
    return [scope.encode() + bytes(text[:stop]) for stop in range(BLOCK, len(text) + 1, BLOCK)]


@given(st.lists(st.tuples(st.booleans(), TEXTS, SCOPES), max_size=30))
def test_blocks_are_known_by_our_digests_while_a_copy_is_left(steps: list[tuple[bool, list[int], str]]) -> None:
    rehash = BlockRehash(BLOCK, root)
    copies: Counter[int] = Counter()
    for stores, text, scope in steps:
        found, named = digests(text, scope), names(text, scope)
        if stores:
            new = rehash.stored(named, None, text, scope)
            assert new == [(one, before) for one, before in zip(found, (0, *found), strict=False) if not copies[one]]
            copies.update(found)
        else:
            gone = rehash.removed(named[::-1])
            assert gone == [one for one in reversed(found) if copies[one] == 1]
            copies.subtract(one for one in found if copies[one])
    assert sorted(rehash.cleared()) == sorted(+copies)
    assert rehash.cleared() == []


def test_a_chain_may_come_in_parts_and_goes_on_from_its_parent() -> None:
    rehash = BlockRehash(BLOCK, root)
    text = list(range(3 * BLOCK))
    whole = digests(text, "a")
    assert rehash.stored([1], None, text[:BLOCK], "a") == [(whole[0], 0)]
    assert rehash.stored([2, 3], 1, text[BLOCK:], "") == [(whole[1], whole[0]), (whole[2], whole[1])]
    assert rehash.cleared() == [*whole[::-1]]


def test_scopes_have_digests_of_their_own() -> None:
    rehash = BlockRehash(BLOCK, root)
    text = list(range(BLOCK))
    links = [rehash.stored([name], None, text, scope) for name, scope in enumerate(["", "a"])]
    assert links == [[(digests(text)[0], 0)], [(digests(text, "a")[0], 0)]]


def test_blocks_that_cannot_be_named_are_left_out() -> None:
    rehash = BlockRehash(BLOCK, root)
    text = list(range(BLOCK))
    assert rehash.stored([2], 1, text, "") == []
    assert rehash.stored([1], None, text[:2], "") == []
    assert rehash.removed([1, 2]) == []


def test_a_block_is_gone_with_its_last_copy() -> None:
    rehash, text = BlockRehash(BLOCK, root), list(range(BLOCK))
    assert rehash.stored([1], None, text, "") == [(digests(text)[0], 0)]
    assert rehash.stored([1], None, text, "") == [], "a second copy"
    assert [rehash.removed([1]) for _ in range(3)] == [[], [digests(text)[0]], []]

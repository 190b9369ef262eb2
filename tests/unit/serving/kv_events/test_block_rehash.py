"""Our digests of an engine's blocks, against a naive record of every copy."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairlead.token_ids import pack_ids
from serving.blocks import chain, root_seed, unpack_digests
from serving.kv_events.core.block_rehash import BlockRehash, TierChange
from serving.kv_events.core.tiers import DEVICE, HOST, TIERS

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


STEP = st.tuples(st.booleans(), TEXTS, SCOPES, st.sampled_from(TIERS), st.booleans())


@given(st.lists(STEP, max_size=30), st.data())
def test_copies_in_several_memories_are_told_apart(
    steps: list[tuple[bool, list[int], str, int, bool]], data: st.DataObject
) -> None:
    """In the set of each tier are the blocks with a copy there or in a faster memory, whatever is told when."""
    rehash = BlockRehash(BLOCK, root)
    copies: Counter[tuple[int, int]] = Counter()  # of digest and tier
    told: dict[int, set[int]] = {tier: set() for tier in TIERS}
    seen = {DEVICE}
    for stores, text, scope, tier, tells_tokens in steps:
        found, named = digests(text, scope), names(text, scope)
        known = [one for one in found if any(copies[one, each] for each in TIERS)]
        if stores:
            seen.add(tier)
            if tells_tokens or tier == DEVICE:
                told[DEVICE].update(digest for digest, _ in rehash.stored(named, None, text, scope, tier))
                known = list(found)
            else:
                assert rehash.stored(named, None, [], scope, tier) == []
            copies.update((one, tier) for one in known)
        else:
            told[DEVICE].difference_update(rehash.removed(named[::-1], tier))
            copies.subtract((one, tier) for one in found if copies[one, tier])
        if data.draw(st.booleans()):
            for change in rehash.take_slower():
                assert not told[change.tier].intersection(digest for digest, _ in change.cached)
                told[change.tier].difference_update(change.evicted)
                told[change.tier].update(digest for digest, _ in change.cached)
            for each in seen:
                assert told[each] == {one for (one, other), count in copies.items() if count and other <= each}
    assert set(rehash.cleared()) == {one for (one, tier), count in copies.items() if count and tier == DEVICE}
    for change in rehash.take_slower():
        assert not change.cached
        told[change.tier].difference_update(change.evicted)
    assert not any(told[tier] for tier in seen - {DEVICE})


def test_a_block_whose_name_alone_is_told_is_found_after_the_device_has_lost_it() -> None:
    rehash, text = BlockRehash(BLOCK, root), list(range(2 * BLOCK))
    first, second = digests(text)
    rehash.stored([1, 2], None, text, "")
    assert rehash.take_slower() == [], "there is no slower memory yet"
    assert rehash.stored([1, 2, 3], None, [], "", HOST) == []
    assert rehash.take_slower() == [TierChange(HOST, [(first, 0), (second, first)], [])]
    assert rehash.removed([2, 1]) == [second, first]
    assert rehash.take_slower() == [], "a copy is left"
    assert rehash.removed([2], HOST) == []
    assert rehash.take_slower() == [TierChange(HOST, [], [second])]
    assert rehash.stored([2], 1, text[BLOCK:], "") == [(second, first)], "loaded and computed on"
    assert rehash.take_slower() == [TierChange(HOST, [(second, first)], [])]

"""The block chain: equal digests exactly for equal whole prefixes of full blocks."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from fairlead.token_ids import pack_ids, unpack_ids
from serving.blocks import chain, pack_digests, root_seed, unpack_digests

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=60)
SMALL_IDS = st.lists(st.integers(0, 1), max_size=24)  # so that prefixes often agree
BLOCK = st.integers(1, 8)
SEED = st.integers(0, 2**64 - 1)


def digests(ids: list[int], block: int, seed: int) -> tuple[int, ...]:
    return unpack_digests(chain(pack_ids(ids), block, seed))


@given(IDS, BLOCK, SEED)
def test_each_digest_is_seeded_by_the_one_before(ids: list[int], block: int, seed: int) -> None:
    expected, parent = [], seed
    for start in range(0, len(ids) // block * block, block):
        packed = b"".join(token.to_bytes(4, "little") for token in ids[start : start + block])
        parent = xxhash.xxh3_64_intdigest(packed, parent)
        expected.append(parent)
    assert list(digests(ids, block, seed)) == expected


@given(SMALL_IDS, SMALL_IDS, BLOCK, SEED)
def test_digests_agree_as_long_as_prefixes_do(a: list[int], b: list[int], block: int, seed: int) -> None:
    for k, (left, right) in enumerate(zip(digests(a, block, seed), digests(b, block, seed), strict=False), start=1):
        assert (left == right) == (a[: k * block] == b[: k * block])


@given(IDS)
def test_ids_survive_packing(ids: list[int]) -> None:
    packed = pack_ids(ids)
    assert packed == b"".join(token.to_bytes(4, "little") for token in ids)
    assert unpack_ids(packed) == ids


@given(st.lists(SEED, max_size=20))
def test_digests_survive_packing(values: list[int]) -> None:
    packed = pack_digests(values)
    assert packed == b"".join(value.to_bytes(8, "little") for value in values)
    assert unpack_digests(packed) == tuple(values)


def test_a_torn_packing_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4 bytes, got 5"):
        unpack_ids(b"12345")
    with pytest.raises(ValueError, match="multiple of 8 bytes, got 12"):
        unpack_digests(b"123456789012")


def test_chains_of_other_deployments_models_and_scopes_never_meet() -> None:
    seeds = [root_seed(*names) for names in (("s", "m", "a"), ("t", "m", "a"), ("s", "n", "a"), ("s", "m", "b"))]
    assert len(set(seeds)) == len(seeds)
    assert root_seed("ab", "c", "") != root_seed("a", "bc", ""), "the parts are kept apart"

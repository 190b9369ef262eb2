"""Changes of a cache are reported in their order, each block with its latest change alone."""

from local_worker.core.block_cache import BlockChanges

CHAIN = ((1, 0), (2, 1))


def test_a_parent_that_is_cached_again_comes_before_its_child() -> None:
    changes = BlockChanges()
    changes.evicted((2, 1))
    changes.cached(CHAIN)
    assert changes.take_events() == (CHAIN, ())


def test_a_parent_that_is_evicted_again_comes_after_its_child() -> None:
    changes = BlockChanges()
    changes.cached(CHAIN)
    changes.evicted((2, 1))
    assert changes.take_events() == ((), (2, 1))

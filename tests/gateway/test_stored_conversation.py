"""StoredConversation: its items against a plain list, and its size against what is allocated."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.response_store import OVERHEAD, ResponseStore
from gateway.core.stored_conversation import ITEM_OVERHEAD, StoredConversation, StoredItem


def conversation(*items: StoredItem, metadata: bytes = b"{}") -> StoredConversation:
    return StoredConversation(id="conv_1", client="ann", created=1, metadata=metadata, items=items)


@given(steps=st.lists(st.integers(0, 9)), metadata=st.binary(max_size=5))
def test_items_are_added_behind_and_removed_anywhere(steps: list[int], metadata: bytes) -> None:
    """A step adds an item, or removes the one that it finds."""
    found, naive = conversation(metadata=metadata), list[StoredItem]()
    for step in steps:
        item = StoredItem(f"msg_{step}", b"x" * step)
        place = found.find(item.id)
        assert place == (naive.index(item) if item in naive else None)
        if place is None:
            found = found.extended([item])
            naive.append(item)
        else:
            found = found.without(place)
            naive.remove(item)
        assert found.items == tuple(naive)
        assert (found.id, found.client, found.metadata) == ("conv_1", "ann", metadata)
        texts = len(metadata) + sum(len(item.body) for item in naive)
        assert found.length == sum(len(item.body) for item in naive)
        assert found.size == OVERHEAD + texts + len(naive) * ITEM_OVERHEAD


def test_its_memory_is_counted() -> None:
    number, text = 20_000, 50
    store = ResponseStore(2**30, 10.0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    items = [StoredItem(f"msg_{place:016x}{place:016x}", b"x" * text + b"%d" % place) for place in range(number)]
    assert store.add(conversation(*items), 0.0)
    del items
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken <= 1.01 * store.size, "but for what other threads of the tests' process allocate meanwhile"

"""A ResponseStore against a plain list, and its memory against what is allocated."""

import tracemalloc
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.response_store import OVERHEAD, ResponseStore, StoredResponse

CLIENTS = ("ann", "bob", "eve")
SECONDS = 10.0
CAPACITY = 8 * OVERHEAD


def response(response_id: str, client: str = "ann", size: int = OVERHEAD) -> StoredResponse:
    """A response that counts `size` bytes."""
    body = b"x" * (size - OVERHEAD)
    return StoredResponse(id=response_id, client=client, interaction="", body=body, conversation=b"")


class NaiveStore:
    """All responses in the order of their arrival; everything else is counted anew each time."""

    def __init__(self) -> None:
        self.arrived: list[tuple[float, StoredResponse]] = []
        self.reached: dict[str, int] = {}  # when a client's size last came to have its number of bits
        self.numbers = count()

    def size(self, client: str) -> int:
        return sum(response.size for _, response in self.arrived if response.client == client)

    def change(self, arrived: list[tuple[float, StoredResponse]]) -> None:
        before = {client: self.size(client).bit_length() for client in CLIENTS}
        self.arrived = arrived
        for client in CLIENTS:
            if self.size(client).bit_length() != before[client]:
                self.reached[client] = next(self.numbers)

    def add(self, response: StoredResponse, now: float) -> None:
        if response.size > CAPACITY:
            return
        self.remove(response.id)
        self.change([*self.arrived, (now, response)])
        while sum(map(self.size, CLIENTS)) > CAPACITY:
            bits = max(self.size(client).bit_length() for client in CLIENTS)
            largest = [client for client in CLIENTS if self.size(client).bit_length() == bits]
            victim = min(largest, key=lambda client: self.reached[client])
            assert all(self.size(client) < 2 * self.size(victim) for client in CLIENTS)
            self.remove(next(each.id for _, each in self.arrived if each.client == victim))

    def remove(self, response_id: str) -> None:
        self.change([(time, each) for time, each in self.arrived if each.id != response_id])

    def forget(self, now: float) -> None:
        for time, each in self.arrived:
            if now - time >= SECONDS:
                self.remove(each.id)


class Stores(RuleBasedStateMachine):
    """Both stores are given the same."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.ids: list[str] = []
        self.store = ResponseStore(CAPACITY, SECONDS)
        self.naive = NaiveStore()

    @rule(client=st.sampled_from(CLIENTS), size=st.integers(OVERHEAD, CAPACITY // 2) | st.just(CAPACITY + 1))
    def add(self, client: str, size: int) -> None:
        added = response(f"response {len(self.ids)}", client, size)
        self.ids.append(added.id)
        self.naive.forget(self.now)
        self.naive.add(added, self.now)
        assert self.store.add(added, self.now) == (added in [each for _, each in self.naive.arrived])

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        stored = [each.id for time, each in self.naive.arrived if self.now - time < SECONDS]
        if stored:
            chosen = data.draw(st.sampled_from(stored))
            assert self.store.find(chosen, self.now) is not None
            self.naive.forget(self.now)
            self.naive.remove(chosen)
            self.store.remove(chosen)

    @rule(seconds=st.sampled_from([1.0, 4.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "store"):
            self.naive.forget(self.now)
            found = [self.store.find(response_id, self.now) for response_id in self.ids]
            stored = sorted((each for _, each in self.naive.arrived), key=lambda each: self.ids.index(each.id))
            assert [each for each in found if each is not None] == stored
            assert len(self.store) == len(self.naive.arrived)
            assert self.store.size == sum(map(self.naive.size, CLIENTS))
            self.store.check_invariants()


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=50, stateful_step_count=30)


def test_whoever_floods_displaces_its_own_responses() -> None:
    store = ResponseStore(100 * OVERHEAD, SECONDS)
    quiet = [response(f"quiet {number}", "ann") for number in range(20)]
    for each in quiet:
        store.add(each, 0.0)
    for number in range(1000):
        assert store.add(response(f"flood {number}", "eve"), 1.0)
    assert all(store.find(each.id, 1.0) for each in quiet)
    assert len(store) == 100
    assert store.find("flood 919", 1.0) is None
    assert store.find("flood 920", 1.0) is not None


def test_a_response_larger_than_the_store_displaces_nothing() -> None:
    store = ResponseStore(2 * OVERHEAD, SECONDS)
    assert store.add(response("small"), 0.0)
    assert not store.add(response("large", "bob", 2 * OVERHEAD + 1), 0.0)
    assert store.find("small", 0.0) is not None


def test_a_response_as_large_as_the_store_displaces_all_others() -> None:
    store = ResponseStore(2**14, SECONDS)
    for response_id in "ab":
        assert store.add(response(response_id, "ann", 2**14), 0.0)
    assert [store.find(response_id, 0.0) is not None for response_id in "ab"] == [False, True]


def test_room_is_made_of_what_is_over_first() -> None:
    store = ResponseStore(3 * OVERHEAD, SECONDS)
    store.add(response("old", "ann"), 0.0)
    store.add(response("young", "bob", 2 * OVERHEAD), 5.0)
    assert store.add(response("new", "eve"), SECONDS)
    assert store.find("young", SECONDS) is not None


def test_a_store_without_room_stores_nothing() -> None:
    store = ResponseStore(0, SECONDS)
    assert not store.add(response("a"), 0.0)
    assert store.find("a", 0.0) is None
    store.check_invariants()


def test_unknown_responses_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        ResponseStore(CAPACITY, SECONDS).remove("a")


@pytest.mark.parametrize("clients", [1, 10_000])
@pytest.mark.parametrize("size", [0, 500, 5000])
def test_its_memory_is_bounded(clients: int, size: int) -> None:
    """More is offered than there is room for; nothing that the store refers to existed before."""
    capacity = 2**20
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    store = ResponseStore(capacity, SECONDS)
    for number in range(3 * capacity // (OVERHEAD + size)):
        store.add(
            StoredResponse(
                id=f"resp_{number:016x}",
                client=f"a tenant with a long name/user {number % clients:064}",
                interaction=f"interaction {number:064}",
                body=b"x" * (size // 2),
                conversation=b"x" * (size // 2),
            ),
            0.0,
        )
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(store) > 0.9 * capacity / (OVERHEAD + size)

    assert taken <= 1.01 * capacity, "but for what other threads of the tests' process allocate meanwhile"

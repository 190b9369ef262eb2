"""The queue of clients, against a dictionary of keys; and that keys which have changed do not pile up."""

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.policies.client_priority_queue import SPARE, ClientPriorityQueue

CLIENT = st.sampled_from("abc")
ACTS = st.lists(st.tuples(CLIENT, st.none() | st.integers(0, 5)), max_size=120)


class Key(tuple[int, ...]):
    """A key that counts how many of its kind somebody holds."""

    alive = 0

    def __new__(cls, *parts: int) -> "Key":
        cls.alive += 1
        return super().__new__(cls, parts)

    def __del__(self) -> None:
        Key.alive -= 1


@given(ACTS)
def test_the_least_key_comes_first(acts: list[tuple[str, int | None]]) -> None:
    queue, keys = ClientPriorityQueue(), dict[str, tuple[int, ...]]()
    for client, key in acts:
        if key is None:
            queue.discard(client)
            keys.pop(client, None)
        else:
            keys[client] = (key, ord(client))
            queue.put(client, keys[client])
        assert (client in queue) == (client in keys)
        assert queue.least() == min(keys, key=keys.__getitem__, default=None)
        assert queue.least_key() == min(keys.values(), default=None)


def test_changed_keys_are_let_go() -> None:
    queue, most = ClientPriorityQueue(), 0
    for number in range(200):
        for client in "ab":
            queue.put(client, Key(-number, ord(client)))
            most = max(most, Key.alive)
    assert most == 2 * 2 + SPARE + 1, "two for each client, the spare ones, and the new one"


def test_the_order_holds_when_changed_keys_are_let_go() -> None:
    queue, keys = ClientPriorityQueue(), dict[str, tuple[int, ...]]()
    for number in range(200):
        client = "abc"[number % 3]
        keys[client] = (-number,)
        queue.put(client, keys[client])
        assert queue.least_key() == min(keys.values())

"""The queue of clients, against a dictionary of keys; and that keys which have changed do not pile up."""

from hypothesis import given
from hypothesis import strategies as st

from serving.core.priority_queue import SPARE, PriorityQueue

CLIENT = st.sampled_from("abc")
KEYS = [(number,) for number in range(6)]  # clients share keys, each of which is one tuple for all
CHANGES = st.tuples(CLIENT, st.none() | st.sampled_from(KEYS))
ACTS = st.lists(CHANGES | CHANGES | CHANGES | st.none(), max_size=60)


class Key(tuple[int, ...]):
    """A key that counts how many of its kind somebody holds."""

    alive = 0

    def __new__(cls, *parts: int) -> "Key":
        cls.alive += 1
        return super().__new__(cls, parts)

    def __del__(self) -> None:
        Key.alive -= 1


@given(ACTS)
def test_the_least_key_comes_first_and_all_clients_that_have_it_are_taken(
    acts: list[tuple[str, tuple[int, ...] | None] | None],
) -> None:
    queue, keys = PriorityQueue(), dict[str, tuple[int, ...]]()
    for act in acts:
        match act:
            case None if keys:
                least = min(keys.values())
                taken = sorted(client for client, key in keys.items() if key == least)
                assert queue.take_least() == (least, taken)
                keys = {client: key for client, key in keys.items() if client not in taken}
            case (client, None):
                queue.discard(client)
                keys.pop(client, None)
            case (client, key):
                queue.put(client, key)
                keys[client] = key
        assert len(queue) == len(keys)
        assert [queue.key(client) for client in "abc"] == [keys.get(client) for client in "abc"]
        assert queue.first() == min(((key, client) for client, key in keys.items()), default=None)
        assert [*queue] == [client for _, client in sorted((key, client) for client, key in keys.items())]


def test_each_of_many_clients_comes_once_in_the_order_of_the_keys() -> None:
    queue = PriorityQueue()
    for number in range(20):
        queue.put(str(number), (7 * number % 20,))
    assert [queue.key(client) for client in queue] == [(number,) for number in range(20)]


def test_changed_keys_are_let_go() -> None:
    queue, most = PriorityQueue(), 0
    for number in range(200):
        for client in "ab":
            queue.put(client, Key(-number, ord(client)))
            most = max(most, Key.alive)
    assert most == 2 * 2 + SPARE + 1, "two for each client, the spare ones, and the new one"


def test_the_order_holds_when_changed_keys_are_let_go() -> None:
    queue, keys = PriorityQueue(), dict[str, tuple[int, ...]]()
    for number in range(200):
        client = "abc"[number % 3]
        keys[client] = (-number,)
        queue.put(client, keys[client])
        assert queue.first() == min((key, client) for client, key in keys.items())


def test_a_changed_key_of_the_first_client_is_let_go_at_once() -> None:
    queue, most = PriorityQueue(), 0
    queue.put("b", (50,))
    for number in range(50):
        queue.put("a", Key(number))
        most = max(most, Key.alive)
    assert most == 1

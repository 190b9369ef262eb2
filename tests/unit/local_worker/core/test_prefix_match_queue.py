"""The queue of one client's requests, against a dictionary of keys; and that keys which have changed do not pile up."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.policies.prefix_match_queue import SPARE, PrefixMatchQueue, RankKey
from local_worker.core.request import Request
from serving.sampling_params import SamplingParams

SAMPLING = SamplingParams(max_tokens=1)
MOST_PASSED = 3
ACTS = st.lists(st.tuples(st.sampled_from(["add", "move", "admit", "remove", "hold"]), st.integers(0, 9)), max_size=60)


def waiting(arrival: int, digests: Sequence[int] = ()) -> Request:
    """Return a request with a prompt of one token and these blocks."""
    return Request(
        id=str(arrival),
        client="c",
        tokens=[0],
        prompt_tokens=1,
        digests=[*digests],
        chain_seed=0,
        sampling=SAMPLING,
        arrival=arrival,
    )


def key_of(request: Request, matched: int) -> RankKey:
    return -matched, request.arrival


def by_arrival(request: Request) -> int:
    return request.arrival


@settings(max_examples=60)
@given(acts=ACTS, most_passed=st.sampled_from([None, MOST_PASSED]))
def test_the_longest_match_comes_first_and_the_earliest_when_it_was_passed_often(
    acts: list[tuple[str, int]], most_passed: int | None
) -> None:
    queue, keys, held, passed = PrefixMatchQueue(most_passed), dict[Request, RankKey](), dict[Request, RankKey](), 0
    for number, (act, value) in enumerate(acts):
        if act == "add":
            request = waiting(number)
            keys[request] = key_of(request, value)
            queue.add(request, keys[request])
        elif keys:
            request = [*keys][value % len(keys)]
            earliest = min([*keys, *held], key=by_arrival)
            if act == "move":
                keys[request] = key_of(request, value)
                queue.move(request, keys[request])
            elif act == "hold":
                held[request] = keys.pop(request)
                queue.hold(request)
            else:
                passed = 0 if request is earliest else passed + (act == "admit")
                (queue.admitted if act == "admit" else queue.remove)(request)
                del keys[request]
        if held and value == 0:
            keys |= held
            held.clear()
            queue.release()
        assert (len(queue), set(queue.requests())) == (len(keys) + len(held), {*keys, *held})
        assert queue.first_key() == min(keys.values(), default=None)
        if keys:
            earliest, first = min([*keys, *held], key=by_arrival), min(keys, key=keys.__getitem__)
            promoted = most_passed is not None and passed >= most_passed and earliest in keys
            assert queue.next() is (earliest if promoted else first)


class CountedKey(tuple[int, int]):
    """A key that counts how many of its kind somebody holds."""

    alive = 0

    def __new__(cls, *parts: int) -> "CountedKey":
        cls.alive += 1
        return super().__new__(cls, parts)

    def __del__(self) -> None:
        CountedKey.alive -= 1


def test_keys_that_have_changed_are_let_go_and_the_order_holds() -> None:
    queue, most = PrefixMatchQueue(None), 0
    requests = [waiting(arrival) for arrival in range(3)]
    for request in requests:
        queue.add(request, CountedKey(0, request.arrival))
    for matched in range(1, 100):
        for request in reversed(requests):
            queue.move(request, CountedKey(-matched * (request.arrival + 1), request.arrival))
            most = max(most, CountedKey.alive)
        assert queue.next() is requests[2], "the longest match"
    assert most == 2 * 3 + SPARE + 1, "two for each request, the spare ones, and the new one"


def test_a_request_that_lost_its_match_is_not_the_next() -> None:
    queue, first, second = PrefixMatchQueue(None), waiting(0), waiting(1)
    queue.add(first, key_of(first, 64))
    queue.add(second, key_of(second, 32))
    queue.move(first, key_of(first, 0))
    assert queue.next() is second


def test_requests_that_enter_with_a_part_of_their_prompts_pass_the_earliest_one_a_bounded_number_of_times() -> None:
    queue, earliest = PrefixMatchQueue(MOST_PASSED), waiting(0)
    queue.add(earliest, key_of(earliest, 0))
    others = [waiting(arrival) for arrival in range(1, MOST_PASSED + 2)]
    for other in others[:MOST_PASSED]:
        queue.add(other, key_of(other, 16))
        assert queue.next() is other
        queue.opened(other, key_of(other, 16))
        queue.remove(other)
    queue.add(others[-1], key_of(others[-1], 16))
    assert queue.next() is earliest
    queue.opened(earliest, key_of(earliest, 0))
    assert queue.next() is others[-1], "the count begins anew"

"""VTC's order of accounts, against a sort of all of them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.core.vtc_order import VtcOrder

NAMES = "abcd"
NAME = st.sampled_from(NAMES)
JOIN = st.tuples(st.just("join"), NAME, NAME)
CHARGE = st.tuples(st.just("charge"), NAME, st.integers(-4, 8))
LEAVE = st.tuples(st.just("leave"), NAME, st.none())


@given(st.lists(JOIN | JOIN | CHARGE | CHARGE | LEAVE, max_size=60))
def test_the_account_with_the_lowest_counter_comes_first_and_who_joins_is_lifted_to_it(
    acts: list[tuple[str, str, str | int | None]],
) -> None:
    counters, since = Counter[str](), dict[str, int]()
    order = VtcOrder(counters.__getitem__)
    for number, (kind, name, value) in enumerate(acts):
        if kind == "charge" and isinstance(value, int):
            counters[name] += value
            order.changed(name)
        elif kind == "leave":
            since.pop(name, None)
            order.discard(name)
        elif name not in since and isinstance(value, str):
            least = min((counters[each] for each in since), default=counters[value])
            lifted = order.lifted(name, value)
            assert lifted == max(counters[name], least)
            counters[name] = lifted
            since[name] = number
            order.put(name, number)
        expected = sorted(since, key=lambda each: (counters[each], since[each]))
        assert (len(order), [each in order for each in NAMES]) == (len(since), [each in since for each in NAMES])
        assert order.first() == next(iter(expected), None)
        asked: list[str] = []
        assert order.first_of(lambda each, asked=asked: asked.append(each)) is None  # type: ignore[misc]
        assert asked == expected
        for wanted in expected:
            assert order.first_of(lambda each, wanted=wanted: each if each == wanted else None) == wanted  # type: ignore[misc]
        order.check_invariants(since)


def test_of_equal_counters_the_one_with_the_least_tie_comes_first_also_after_the_tie_changed() -> None:
    order = VtcOrder(Counter[str]().__getitem__)
    order.put("a", 2)
    order.put("b", 1)
    assert order.first() == "b"
    order.put("b", 3)
    assert order.first() == "a"

"""Water-filling against the definition: fill everybody at the same speed until they have what they ask for."""

import math
from collections.abc import Mapping
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from simulation.what_if.water_filling import WaterFilling

ASKS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), max_size=8)
CAPACITIES = st.integers(1, 150)


def filled(asks: Mapping[str, int], capacity: int) -> dict[str, Fraction]:
    """Round by round: what is left is given in equal parts to those who still ask."""
    granted = dict.fromkeys(asks, Fraction(0))
    left = Fraction(capacity)
    while left and (asking := [client for client in asks if granted[client] < asks[client]]):
        part = min(left / len(asking), *(asks[client] - granted[client] for client in asking))
        for client in asking:
            granted[client] += part
            left -= part
    return granted


def close(one: float, other: float | Fraction) -> bool:
    return math.isclose(one, float(other), rel_tol=1e-9)


@given(ASKS, CAPACITIES)
def test_everybody_gets_what_filling_round_by_round_gives(asks: dict[str, int], capacity: int) -> None:
    filling, expected = WaterFilling(asks, capacity), filled(asks, capacity)
    for client, ask in asks.items():
        assert close(filling.granted(client), expected[client])
        assert filling.is_met(client) == (expected[client] == ask)


@given(ASKS, CAPACITIES, st.sampled_from("abcdefgh"))
@example({}, 10, "a")
@example({"a": 5, "b": 5}, 10, "a")
def test_a_clients_open_share_is_that_of_an_endless_demand(asks: dict[str, int], capacity: int, who: str) -> None:
    assert close(WaterFilling(asks, capacity).open_to(who), filled({**asks, who: 1000}, capacity)[who])


@given(ASKS, CAPACITIES)
def test_nobody_has_less_open_than_an_equal_part_or_than_is_granted(asks: dict[str, int], capacity: int) -> None:
    filling = WaterFilling(asks, capacity)
    for client in asks:
        assert filling.open_to(client) * (1 + 1e-9) >= max(capacity / len(asks), filling.granted(client))


def test_who_asks_for_nothing_gets_nothing() -> None:
    filling = WaterFilling({"a": 30, "b": 2}, 10)
    assert (filling.granted("nobody"), filling.is_met("nobody"), filling.level) == (0.0, True, 8.0)

"""Cost functions: what is charged step by step adds up to the whole, and outputs cost most per token when longest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cost import COSTS, MICRO, Normalized, Profiled, WeightedTokens, charge, weight_thousandths

TOKENS = st.integers(0, 5000)
by_name = pytest.mark.parametrize("name", COSTS)


@by_name
@given(prompt=TOKENS, steps=st.lists(st.integers(1, 50), max_size=20))
def test_output_charged_in_any_steps_costs_the_same(name: str, prompt: int, steps: list[int]) -> None:
    cost, done, charged = COSTS[name](), 0, 0
    for step in steps:
        charged += cost.decode(step, prompt, done)
        done += step
    assert charged == cost.decode(done, prompt, 0)


@by_name
@given(prompt=TOKENS, short=st.integers(1, 2000), more=st.integers(0, 2000))
def test_the_longest_output_costs_most_per_token(name: str, prompt: int, short: int, more: int) -> None:
    cost, long = COSTS[name](), short + more
    assert cost.decode(short, prompt, 0) * long <= cost.decode(long, prompt, 0) * short


@by_name
def test_no_tokens_cost_nothing(name: str) -> None:
    assert COSTS[name]().extend(0, 0) == COSTS[name]().decode(0, 100, 7) == 0


def test_the_papers_numbers() -> None:
    assert WeightedTokens().extend(3, 1) + WeightedTokens().decode(5, 3, 0) == 13 * MICRO
    profiled = Profiled()
    h = 2.1 * 100 + 50 + 0.04 * 100 * 50 + 0.032 * 50**2 + 11.46
    assert profiled.extend(100, 0) + profiled.decode(50, 100, 0) == round(h * MICRO)
    assert Normalized().extend(10, 4) + Normalized().decode(5, 10, 0) == (6 + 2 * 4 + 5) * MICRO


def test_an_account_of_twice_the_weight_is_charged_half() -> None:
    assert charge(10 * MICRO, weight_thousandths(2.0)) == 5 * MICRO
    assert weight_thousandths(1e-9) == 1

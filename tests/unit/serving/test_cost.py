"""Cost functions: what is charged step by step adds up to the whole, and outputs cost most per token when longest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.config import ConfigError, cost_function
from serving.cost import (
    COSTS,
    MICRO,
    Cost,
    Normalized,
    Profiled,
    WeightedTokens,
    charge,
    cost_name,
    parse_cost,
    weight_thousandths,
)

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


def test_a_charge_is_rounded_down_to_a_millionth() -> None:
    assert [charge(micro, 3000) for micro in range(7)] == [0, 0, 0, 1, 1, 1, 2]


def test_a_weight_is_rounded_to_the_nearest_thousandth() -> None:
    assert [weight_thousandths(weight) for weight in (0.0014, 0.0016, 0.1 + 0.2, 1.9996)] == [1, 2, 300, 2000]
    assert weight_thousandths(0.29) == 290, "which in floating point is a little less"


NAMED = {
    "weighted-tokens": WeightedTokens(1, 2),
    "weighted-tokens:3,4": WeightedTokens(3, 4),
    "profiled": Profiled(),
    "normalized": Normalized(1, 2, 1),
    "normalized:1,3,1": Normalized(1, 3, 1),
}


@pytest.mark.parametrize(("text", "cost"), NAMED.items())
def test_a_cost_has_a_name(text: str, cost: Cost) -> None:
    parsed = parse_cost(text)
    assert parsed == cost
    assert parse_cost(cost_name(parsed)) == cost


def test_equal_costs_have_one_name() -> None:
    assert cost_name(parse_cost("normalized")) == cost_name(parse_cost("normalized:1,2,1")) == "normalized:1,2,1"
    assert cost_name(parse_cost("normalized:1,3,1")) != cost_name(parse_cost("normalized"))


WRONG = {
    "words": "cost: must be one of weighted-tokens, profiled, normalized, got 'words'",
    "normalized:": r"cost: normalized takes 3 numbers \(alpha, beta, gamma\), got 'normalized:'",
    "normalized:1,3": r"cost: normalized takes 3 numbers \(alpha, beta, gamma\), got 'normalized:1,3'",
    "profiled:1": r"cost: profiled takes 0 numbers \(none\), got 'profiled:1'",
    "normalized:1,0,1": "cost: beta must be a whole number from 1 to 1000, got '0'",
    "weighted-tokens:1,1001": "cost: w_q must be a whole number from 1 to 1000, got '1001'",
    "weighted-tokens:0.5,2": "cost: w_e must be a whole number from 1 to 1000, got '0.5'",
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.items())
def test_a_text_that_is_no_cost_function_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cost_function(text)

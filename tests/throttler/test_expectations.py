from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.core.expectations import CLIENTS, SAMPLES, Expectations, Learned, Subject
from throttler.core.profiles import AppProfile, Expectation, Profiles

AGENT = AppProfile(
    per_minute=1, max_calls=9, expected=Expectation(output=100), stages={0: Expectation(input=400, system=300)}
)
PROFILES = Profiles(apps={"agent": AGENT}, reference_tokens=500)


def call(tokens: float) -> Expectation:
    return Expectation(output=tokens)


def test_without_a_prior_the_norm_is_one_and_nothing_is_learned() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed("unknown", 0, "u", call(9))
    assert expectations.norm("unknown", 0) == 1.0
    assert expectations.learned() == {}


def test_norms_are_the_papers_weights_over_the_reference() -> None:
    expectations = Expectations(PROFILES)
    assert expectations.norm("agent", 0) == (400 + 2 * 300) / 500
    assert expectations.norm("agent", 1) == expectations.norm("agent", 8) == 100 / 500


def test_stages_are_learned_apart() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed("agent", 1, "u", Expectation(input=100, system=10, output=30))
    assert expectations.norm("agent", 1) == 150 / 500
    assert expectations.norm("agent", 2) == 100 / 500


def test_being_most_of_the_traffic_gains_nothing() -> None:
    expectations = Expectations(PROFILES)
    for client in "abcd":
        expectations.observed("agent", 1, client, call(100))
    for _ in range(1000):
        expectations.observed("agent", 1, "greedy", call(10_000))
        expectations.check_invariants()
    assert expectations.norm("agent", 1) == 100 / 500


def test_nobody_moves_it_further_than_twice_or_half() -> None:
    expectations = Expectations(PROFILES)
    for client in range(500):
        expectations.observed("agent", 1, f"c{client}", call(10_000))
    assert expectations.norm("agent", 1) == 200 / 500
    for client in range(500):
        for _ in range(SAMPLES):
            expectations.observed("agent", 1, f"c{client}", call(1))
    assert expectations.norm("agent", 1) == 50 / 500
    expectations.check_invariants()
    assert expectations.learned()[Subject("agent", 1)].clients == CLIENTS, "memory is bounded"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(50, 200)), min_size=1, max_size=80))
def test_agrees_with_computing_it_anew(calls: list[tuple[str, int]]) -> None:
    expectations, by_client = Expectations(PROFILES), dict[str, list[int]]()
    for client, tokens in calls:
        expectations.observed("agent", 1, client, call(tokens))
        expectations.check_invariants()
        by_client.setdefault(client, []).append(tokens)
        expected = median(median(samples[-SAMPLES:]) for samples in by_client.values())
        assert expectations.norm("agent", 1) == pytest.approx(expected / 500)


def test_gateways_weigh_by_their_clients() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed("agent", 1, "u", call(60))
    subject = Subject("agent", 1)
    expectations.heard([{subject: Learned(150.0, 40)}, {subject: Learned(120.0, 5)}])
    assert expectations.norm("agent", 1) == 150 / 500
    expectations.heard([])
    assert expectations.norm("agent", 1) == 60 / 500


def test_other_priors_clamp_what_was_learned_and_apps_without_one_are_forgotten() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed("agent", 1, "u", call(200))
    cheaper = AppProfile(per_minute=1, max_calls=9, expected=Expectation(output=20))
    expectations.configure(Profiles(apps={"agent": cheaper}, reference_tokens=500))
    assert expectations.norm("agent", 1) == 40 / 500
    expectations.configure(Profiles())
    assert expectations.learned() == {}

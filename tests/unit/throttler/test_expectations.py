from statistics import median, median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.core.expectations import CLIENTS, SAMPLES, Expectations, ExpectationSubject, LearnedMedian
from throttler.core.profiles import AppProfile, Expectation, Profiles, RateLimits

AGENT = AppProfile(
    per_minute=1, max_calls=9, expected=Expectation(output=100), stages={0: Expectation(input=400, system=300)}
)
PROFILES = Profiles(apps={"agent": AGENT}, reference_tokens=500)


def call(tokens: float) -> Expectation:
    return Expectation(output=tokens)


def test_without_a_prior_the_norm_is_one_and_nothing_is_learned() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed(ExpectationSubject("t", "unknown", 0), "u", call(9))
    assert expectations.norm(ExpectationSubject("t", "unknown", 0)) == 1.0
    assert expectations.learned() == {}


def test_norms_are_the_papers_weights_over_the_reference() -> None:
    expectations = Expectations(PROFILES)
    assert expectations.norm(ExpectationSubject("t", "agent", 0)) == (400 + 2 * 300) / 500
    assert (
        expectations.norm(ExpectationSubject("t", "agent", 1))
        == expectations.norm(ExpectationSubject("t", "agent", 8))
        == 100 / 500
    )


def test_stages_are_learned_apart() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed(ExpectationSubject("t", "agent", 1), "u", Expectation(input=100, system=10, output=30))
    assert expectations.norm(ExpectationSubject("t", "agent", 1)) == 150 / 500
    assert expectations.norm(ExpectationSubject("t", "agent", 2)) == 100 / 500


def test_being_most_of_the_traffic_gains_nothing() -> None:
    expectations = Expectations(PROFILES)
    for client in "abcd":
        expectations.observed(ExpectationSubject("t", "agent", 1), client, call(100))
    for _ in range(1000):
        expectations.observed(ExpectationSubject("t", "agent", 1), "greedy", call(10_000))
        expectations.check_invariants()
    assert expectations.norm(ExpectationSubject("t", "agent", 1)) == 100 / 500


SMALLEST = 100 / 2  # of PROFILES: half of its least prior
FIRST, LATER = (
    ExpectationSubject("t", "agent", 0),
    ExpectationSubject("t", "agent", 1),
)  # of which 1,000 and 100 are expected


@pytest.mark.parametrize("subject", [FIRST, LATER])
def test_an_app_whose_calls_are_light_comes_down_to_what_they_need(subject: ExpectationSubject) -> None:
    expectations = Expectations(PROFILES)
    for _ in range(SAMPLES):
        expectations.observed(subject, "u", call(60))
    assert expectations.norm(subject) == 60 / 500
    for _ in range(SAMPLES):
        expectations.observed(subject, "u", call(1))
    assert expectations.norm(subject) == SMALLEST / 500


def test_an_app_whose_calls_are_heavy_rises_to_twice_its_prior_at_most() -> None:
    expectations = Expectations(PROFILES)
    for tokens, expected in ((60, 60), (150, 150), (10_000, 200)):
        for _ in range(SAMPLES):
            expectations.observed(LATER, "u", call(tokens))
        assert expectations.norm(LATER) == expected / 500


def test_many_clients_cost_no_more_memory_than_some() -> None:
    expectations = Expectations(PROFILES)
    for client in range(CLIENTS + 50):
        expectations.observed(LATER, f"c{client}", call(100))
    expectations.check_invariants()
    assert expectations.learned()[LATER].clients == CLIENTS


TENANTS_CALLS = st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from("abc"), st.integers(0, 1), st.floats(0, 1e6)))


@given(TENANTS_CALLS)
def test_a_tenants_norms_are_what_they_were_without_the_others(calls: list[tuple[str, str, int, float]]) -> None:
    together, alone = Expectations(PROFILES), Expectations(PROFILES)
    for tenant, client, stage, tokens in calls:
        for expectations in (together, alone) if tenant == "t" else (together,):
            expectations.observed(ExpectationSubject(tenant, "agent", stage), client, call(tokens))
    for subject in (FIRST, LATER):
        assert together.norm(subject) == alone.norm(subject)
        assert SMALLEST / 500 <= together.norm(subject) <= (2000 if subject == FIRST else 200) / 500


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(50, 200)), min_size=1, max_size=80))
def test_agrees_with_computing_it_anew(calls: list[tuple[str, int]]) -> None:
    expectations, by_client = Expectations(PROFILES), dict[str, list[int]]()
    for client, tokens in calls:
        expectations.observed(ExpectationSubject("t", "agent", 1), client, call(tokens))
        expectations.check_invariants()
        by_client.setdefault(client, []).append(tokens)
        expected = median(median(samples[-SAMPLES:]) for samples in by_client.values())
        assert expectations.norm(ExpectationSubject("t", "agent", 1)) == pytest.approx(expected / 500)


def test_gateways_weigh_by_their_clients() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed(ExpectationSubject("t", "agent", 1), "u", call(60))
    subject = ExpectationSubject("t", "agent", 1)
    expectations.replace_remote([{subject: LearnedMedian(150.0, 40)}, {subject: LearnedMedian(120.0, 5)}])
    assert expectations.norm(ExpectationSubject("t", "agent", 1)) == 150 / 500
    expectations.replace_remote([{subject: LearnedMedian(150.0, 1)}])
    assert expectations.norm(subject) == 60 / 500, "of two equal halves the lower one counts"
    expectations.replace_remote([])
    assert expectations.norm(ExpectationSubject("t", "agent", 1)) == 60 / 500


def test_other_priors_clamp_what_was_learned_and_apps_without_one_are_forgotten() -> None:
    expectations = Expectations(PROFILES)
    expectations.observed(ExpectationSubject("t", "agent", 1), "u", call(200))
    cheaper = AppProfile(per_minute=1, max_calls=9, expected=Expectation(output=20))
    expectations.configure(Profiles(apps={"agent": cheaper}, reference_tokens=500))
    assert expectations.norm(ExpectationSubject("t", "agent", 1)) == 40 / 500
    for _ in range(SAMPLES):
        expectations.observed(LATER, "u", call(1))
    assert expectations.norm(LATER) == 10 / 500, "half of the smallest prior of now"
    expectations.configure(Profiles())
    assert expectations.learned() == {}


@given(st.lists(st.tuples(st.integers(50, 200), st.integers(1, 5)), min_size=1, max_size=6))
def test_the_norm_of_all_gateways_is_the_lower_median_of_their_clients(views: list[tuple[int, int]]) -> None:
    expectations = Expectations(PROFILES)
    expectations.replace_remote([{LATER: LearnedMedian(weight, clients)} for weight, clients in views])
    assert expectations.norm(LATER) == median_low(weight for weight, clients in views for _ in range(clients)) / 500


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_limits_are_positive(wrong: float) -> None:
    with pytest.raises(ValueError, match="idle_ttl: must be positive, got"):
        RateLimits(idle_ttl=wrong)

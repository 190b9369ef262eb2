import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.config import ConfigError
from tests.repo.documented import blocks
from tests.repo.test_text import ROOT
from throttler.core.budget import NANO
from throttler.core.profiles import Expectation, Profiles, RateLimits
from throttler.profiles_file import parse

GOOD = """
limits: {user_per_minute: 30, idle_ttl: 60.5}
weights: {beta: 3}
reference_tokens: 500
tiers: {gold: 4, free: 0.5}
apps:
  default: {per_minute: 100}
  agent:
    max_calls: 8
    expected: {input: 800, output: 120}
    stages:
      0: {input: 1500, system: 300, output: 50}
    public_system: |-
      You are an agent.
      Be brief.
"""
DEFAULTS = RateLimits(user_per_minute=7, app_per_minute=70, max_calls=9)


def test_a_whole_file() -> None:
    profiles = parse(GOOD, "profiles.yaml", DEFAULTS)
    assert (profiles.limits.user_per_minute, profiles.limits.idle_ttl, profiles.limits.kappa) == (30, 60.5, 5)
    assert dict(profiles.tiers) == {"gold": 4.0, "free": 0.5}
    agent, unknown = profiles.app("agent"), profiles.app("unknown")
    assert (agent.per_minute, agent.max_calls) == (70, 8)
    assert (unknown.per_minute, unknown.max_calls) == (100, 9), "an app without a profile is the default app"
    assert agent.prior(0) == Expectation(input=1500, system=300, output=50)
    assert agent.prior(5) == Expectation(input=800, output=120)
    assert unknown.prior(0) is None
    assert (agent.public_system, unknown.public_system) == ("You are an agent.\nBe brief.", "")
    assert profiles.weights.weigh(Expectation(input=1, system=1, output=1)) == 5.0


def test_the_example_of_the_page_on_budgets_is_a_file_of_profiles() -> None:
    [example] = blocks((ROOT / "docs" / "limits.md").read_text(), "yaml")
    assert "agent" in parse(example, "limits.md", DEFAULTS).apps


def test_budgets_in_tokens_and_cost_units() -> None:
    text = """
limits:
  {user_tokens_per_minute: 9000, app_tokens_per_minute: 50000, user_cost_per_minute: 20000, tenant_per_minute: 100,
   tenant_tokens_per_minute: 90000, tenant_cost_per_minute: 200000}
apps: {agent: {tokens_per_minute: 70000, cost_per_minute: 80000}}
"""
    profiles = parse(text, "p.yaml", DEFAULTS)
    assert profiles.limits.tenant_per_minute == 100
    assert {budget.name: budget.limit for budget in profiles.budgets("t", "unknown")} == {
        "user_tokens_per_minute": 9000,
        "app_tokens_per_minute": 50000,
        "user_cost_per_minute": 20000,
        "tenant_tokens_per_minute": 90000,
        "tenant_cost_per_minute": 200000,
    }
    of_agent = {budget.name: budget.limit for budget in profiles.budgets("t", "agent")}
    assert (of_agent["app_tokens_per_minute"], of_agent["app_cost_per_minute"]) == (70000, 80000)
    for wrong in ("limits: {user_tokens_per_minute: 0}", "apps: {a: {cost_per_minute: -1}}"):
        with pytest.raises(ConfigError, match="per_minute: expected a whole number > 0"):
            parse(wrong, "p.yaml", DEFAULTS)


def test_an_empty_mapping_says_nothing_new() -> None:
    assert parse("apps: {}", "f", DEFAULTS) == Profiles(limits=DEFAULTS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "p.yaml:1: is empty"),
        ("tiers: {}\napps: [", "p.yaml:2: is no YAML: expected the node content"),
        ("- 1", "p.yaml:1: expected a mapping, got a list"),
        ("app: {}", "p.yaml:1: app: unknown key 'app'; known keys: limits"),
        ("limits:\n  user_per_minute: 0", "p.yaml:2: limits.user_per_minute: expected a whole number > 0, got 0"),
        ("limits:\n  kappa: 1.5", "p.yaml:2: limits.kappa: expected a whole number > 0, got 1.5"),
        ("limits:\n\n  max_age: .inf", "p.yaml:3: limits.max_age: expected a number > 0, got inf"),
        ("limits:\n  kappa: 2147483648", "p.yaml:2: limits.kappa: expected at most 2147483647, got 2147483648"),
        (f"limits:\n  max_age: {'9' * 400}", "p.yaml:2: limits.max_age: expected at most 2147483647, got 9"),
        (
            "apps:\n  a:\n    expected: {input: .nan}",
            "p.yaml:3: apps.a.expected.input: expected a number >= 0, got nan",
        ),
        ("limits: {users: 1}", "p.yaml:1: limits.users: unknown key 'users'"),
        ("tiers:\n  gold: -1", "p.yaml:2: tiers.gold: expected a number > 0, got -1"),
        ("tiers:\n  gold: 2000000", "p.yaml:2: tiers.gold: expected at most 1000000, got 2000000"),
        ("reference_tokens: many", "p.yaml:1: reference_tokens: expected a number > 0, got 'many'"),
        ("apps:\n  a:\n    max_calls: yes", "p.yaml:3: apps.a.max_calls: expected a whole number > 0, got True"),
        ("apps:\n  a:\n    public_system: true", "p.yaml:3: apps.a.public_system: expected a text, got True"),
        ("apps:\n  a: 3", "p.yaml:2: apps.a: expected a mapping, got 3"),
        ("tenants:\n  a/b: {tokens_per_day: 5}", "p.yaml:2: tenants.a/b: expected a name without '/', got 'a/b'"),
        ("apps:\n  ? [a]\n  : {}", "p.yaml:2: apps: expected a text as a key, got a list"),
        ("apps:\n  a: {}\n  a: {}", "p.yaml:3: apps.a: given twice"),
        ("apps:\n  Zoe\u0308: {}\n  'Zo\u00eb ': {}", "p.yaml:3: apps.Zo\u00eb : given twice"),
        ('apps:\n  "a\\u200b": {}', "p.yaml:2: apps.a\u200b: must hold printable"),
        (
            "apps:\n  a:\n    stages:\n      first: {input: 1}",
            "p.yaml:4: apps.a.stages.first: expected a stage",
        ),
        (f"apps: {{a: {{stages: {{{'9' * 10}: {{input: 1}}}}}}}}", ": expected a stage's number"),
        ("apps:\n  a:\n    expected: {output: -1}", "p.yaml:3: apps.a.expected.output: expected a number >= 0, got -1"),
        ("apps:\n  a:\n    expected: {input: 0}", "p.yaml:3: apps.a.expected: expects no tokens at all"),
        ("apps:\n  a:\n    expected:\n      cached: 1", "p.yaml:4: apps.a.expected.cached: unknown key 'cached'"),
    ],
)
def test_mistakes_are_named_by_line_and_key(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "p.yaml", DEFAULTS)
    assert complaint in str(raised.value)


@given(st.text(st.sampled_from("tiers: [{&*!|>-\n\"'\\xU09.e:%~<}]?#,"), max_size=60))
def test_no_text_is_worse_than_wrong(text: str) -> None:
    for file in (
        text,
        f"tiers: {{gold: {text}}}",
        f"limits: {{kappa: {text}}}",
        f"apps: {{a: {{stages: {{{text}: 1}}}}}}",
    ):
        with contextlib.suppress(ConfigError):
            parse(file, "p.yaml", DEFAULTS)


def test_budgets_of_any_window_measure_and_subject() -> None:
    text = """
time_zone: America/New_York
prices: {default: {input: 0.5, output: 2}, large: {input: 5, cached: 0.5, output: 15}}
limits: {user_tokens_per_day: 5000000000, tenant_money_per_calendar_month: 12.5, key_cost_per_hour: 9,
         interaction_tokens: 7}
apps: {agent: {interaction_tokens: 200000, money_per_week: 3}}
tenants: {acme: {money_per_calendar_month: 500}}
"""
    profiles = parse(text, "p.yaml", DEFAULTS)
    limits = {budget.name: budget.limit for budget in profiles.budgets("acme", "agent")}
    assert limits == {
        "user_tokens_per_day": 5_000_000_000,
        "tenant_money_per_calendar_month": 500 * NANO,
        "key_cost_per_hour": 9,
        "interaction_tokens": 200_000,
        "app_money_per_week": 3 * NANO,
    }
    others = {budget.name: budget.limit for budget in profiles.budgets("other", "chat")}
    assert others["tenant_money_per_calendar_month"] == 12.5 * NANO
    assert others["interaction_tokens"] == 7
    assert profiles.price("large").of(10, 100, 20) == 10 * 5000 + 100 * 500 + 20 * 15000
    assert profiles.price("other").of(10, 100, 20) == 110 * 500 + 20 * 2000, "cached tokens cost the same"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("limits: {user_tokens_per_year: 1}", "unknown key 'user_tokens_per_year'; known keys: user_per_minute"),
        ("limits: {interaction_tokens_per_day: 1}", "and budgets such as user_tokens_per_day"),
        ("limits: {user_tokens_per_day: 0}", "limits.user_tokens_per_day: expected a whole number > 0, got 0"),
        ("limits: {user_money_per_day: 1}", "user_money_per_day: needs prices.default"),
        ("apps: {a: {user_tokens_per_day: 1, x: 2}}", "apps.a.x: unknown key 'x'"),
        ("tenants: {a: {interaction_money: 1}}", "interaction_money: needs prices.default"),
        ("time_zone: Mars/Olympus", "time_zone: no such time zone: 'Mars/Olympus'"),
        ("prices: {m: {input: -1}}", "prices.m.input: expected a number >= 0"),
    ],
)
def test_a_wrong_budget_is_named_by_its_key(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "p.yaml", DEFAULTS)
    assert complaint in str(raised.value)

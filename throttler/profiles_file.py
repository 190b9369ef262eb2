"""App profiles as a YAML file.

limits: {user_per_minute: 60, kappa: 5, idle_ttl: 120}   # see RateLimits; all optional
                                                         # tenant_per_minute: of a tenant's users and apps together
                                                         # budgets, as user_tokens_per_day: docs/limits.md
weights: {alpha: 1, beta: 2, gamma: 1}                   # of input, system and output tokens
reference_tokens: 1000                                   # weighted tokens of a call whose norm is 1
tiers: {gold: 4, free: 1}                                # shares, that is 1 / E_i of FairServe
apps:
  agent:
    per_minute: 1200                                     # for each tenant
    tokens_per_minute: 200000                            # a budget, for each tenant, without `app_`
    max_calls: 30
    expected: {input: 800, system: 300, output: 120}     # for stages that are not listed
    stages:
      0: {input: 1500, system: 300, output: 50}
    public_system: |-                                    # |- removes the newline at the end
      You are a helpful agent.
tenants: {acme: {money_per_calendar_month: 500}}         # budgets, without `tenant_`
prices: {default: {input: 0.5, cached: 0.05, output: 2}} # of a million tokens, by model; cached: as input by default
time_zone: Europe/Berlin                                 # of calendar windows; UTC by default

Chats whose first message is the system message `public_system`, word for word, share its cached prefix across tenants.
A request's weight is its tier's share times its norm. The norm is 1 unless the API key alone determines the request's
app (a key with one app or none). The norm can fall to half of the smallest prior divided by `reference_tokens`. A
worker's fairness bound grows when a request arrives whose weight is smaller than all weights before.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from serving.config import ConfigError
from serving.cost import MAX_WEIGHT
from serving.document import ConfigEntry, read
from serving.names import normalized
from throttler.budget_names import EXAMPLES, budget_of, is_budget
from throttler.core.budget import NANO, Budget
from throttler.core.profiles import DEFAULT_PRICE, AppProfile, Expectation, Price, Profiles, RateLimits, TokenWeights

SECONDS = ("idle_ttl", "max_age")
MOST_AMOUNT = 10**15  # of a budget
MAX_DIGITS = 9  # in the number of a stage


def parse(text: str, file: str, defaults: RateLimits) -> Profiles:
    """Parse profiles; limits that `text` does not set take their value from `defaults`.

    Raise ConfigError, which names the file, the line and the key.
    """
    top = read(text, file).fields(
        "limits", "weights", "reference_tokens", "tiers", "apps", "tenants", "prices", "time_zone"
    )
    zone = _zone(top["time_zone"]) if "time_zone" in top else UTC
    limits = _limits(top["limits"], defaults, zone) if "limits" in top else defaults
    apps = {name: _app(entry, limits, zone) for name, entry in _by_name(top, "apps").items()}
    tenants = {name: _tenant(name, entry, zone) for name, entry in _by_name(top, "tenants").items()}
    prices = {name: _price(entry) for name, entry in _named(top, "prices").items()}
    reference = top["reference_tokens"].positive() if "reference_tokens" in top else Profiles().reference_tokens
    profiles = Profiles(
        limits=limits,
        apps=apps,
        tenants=tenants,
        prices=prices,
        tiers={name: entry.positive(MAX_WEIGHT) for name, entry in _named(top, "tiers").items()},
        weights=_weights(top["weights"]) if "weights" in top else TokenWeights(),
        reference_tokens=reference,
    )
    every = (*limits.budgets, *(each for app in apps.values() for each in app.budgets), *sum(tenants.values(), ()))
    priceless = next((each.name for each in every if each.measure == "money"), "")
    if priceless and DEFAULT_PRICE not in prices:
        raise ConfigError(
            f"{file}: {priceless}: needs prices.{DEFAULT_PRICE}, of models that have no price of their own"
        )
    return profiles


def _named(top: dict[str, ConfigEntry], key: str) -> dict[str, ConfigEntry]:
    return top[key].named() if key in top else {}


def _by_name(top: dict[str, ConfigEntry], key: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = {}
    for given, entry in _named(top, key).items():
        try:
            name = normalized(given)
        except ValueError as error:
            raise entry.complaint(str(error)) from error
        if name in found:
            raise entry.complaint("given twice")
        found[name] = entry
    return found


def _tenant(name: str, entry: ConfigEntry, zone: tzinfo) -> tuple[Budget, ...]:
    if "/" in name:  # no tenant has such a name, and the budgets would have no effect
        raise entry.complaint(f"expected a name without '/', got {name!r}")
    return _budgets(entry.named(), zone, "tenant_")


def _limits(entry: ConfigEntry, defaults: RateLimits, zone: tzinfo) -> RateLimits:
    values, budgets = _split(entry, [field.name for field in fields(RateLimits) if field.name != "budgets"], "")
    given = {name: value.positive() if name in SECONDS else value.count() for name, value in values.items()}
    return replace(defaults, **given, budgets=_budgets(budgets, zone, ""))  # type: ignore[arg-type]


def _split(
    entry: ConfigEntry, known: list[str], prefix: str
) -> tuple[Mapping[str, ConfigEntry], Mapping[str, ConfigEntry]]:
    """Return the values of the `known` keys, and those of budgets; raise ConfigError for any other key."""
    values = entry.named()
    budgets = {key: value for key, value in values.items() if is_budget(key) or is_budget(prefix + key)}
    for key, value in values.items():
        if key not in known and key not in budgets:
            raise value.complaint(
                f"unknown key {key!r}; known keys: {', '.join(known)}, and budgets such as {EXAMPLES}"
            )
    return {key: value for key, value in values.items() if key in known}, budgets


def _budgets(values: Mapping[str, ConfigEntry], zone: tzinfo, prefix: str) -> tuple[Budget, ...]:
    """Return the budgets in `values`; `prefix` is left out of their names there, except of those of interactions."""
    found = []
    for key, value in values.items():
        name = key if key.startswith("interaction_") else prefix + key
        try:
            found.append(budget_of(name, _amount(value, name), zone))
        except ValueError as error:
            raise value.complaint(str(error)) from error
    return tuple(found)


def _amount(entry: ConfigEntry, name: str) -> float:
    return entry.positive(MOST_AMOUNT // NANO) if "money" in name else entry.count(MOST_AMOUNT)


def _price(entry: ConfigEntry) -> Price:
    given = {name: round(1000 * value.amount()) for name, value in entry.fields("input", "cached", "output").items()}
    return Price(**{"cached": given.get("input", 0)} | given)


def _zone(entry: ConfigEntry) -> ZoneInfo:
    try:
        return ZoneInfo(entry.text())
    except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise entry.complaint(str(error)) from error
    except KeyError as error:
        raise entry.complaint(f"no such time zone: {entry.text()!r}") from error


def _weights(entry: ConfigEntry) -> TokenWeights:
    return TokenWeights(**{name: value.amount() for name, value in entry.fields("alpha", "beta", "gamma").items()})


def _app(entry: ConfigEntry, limits: RateLimits, zone: tzinfo) -> AppProfile:
    values, budgets = _split(entry, ["per_minute", "max_calls", "expected", "stages", "public_system"], "app_")
    stages = {_stage(name, value): _expectation(value) for name, value in _named(dict(values), "stages").items()}
    return AppProfile(
        per_minute=values["per_minute"].count() if "per_minute" in values else limits.app_per_minute,
        max_calls=values["max_calls"].count() if "max_calls" in values else limits.max_calls,
        budgets=_budgets(budgets, zone, "app_"),
        expected=_expectation(values["expected"]) if "expected" in values else None,
        stages=stages,
        public_system=values["public_system"].text() if "public_system" in values else "",
    )


def _stage(name: str, entry: ConfigEntry) -> int:
    if not name.isdecimal() or len(name) > MAX_DIGITS:
        raise entry.complaint(f"expected a stage's number, 0 for the first call, got {name!r}")
    return int(name)


def _expectation(entry: ConfigEntry) -> Expectation:
    values = {name: value.amount() for name, value in entry.fields("input", "system", "output").items()}
    if not any(values.values()):
        raise entry.complaint("expects no tokens at all")
    return Expectation(**values)

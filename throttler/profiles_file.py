"""App profiles as a YAML file.

limits: {user_per_minute: 60, kappa: 5, idle_ttl: 120}   # see RateLimits; all optional
                                                         # tenant_per_minute: of a tenant's users and apps together
weights: {alpha: 1, beta: 2, gamma: 1}                   # of input, system and output tokens
reference_tokens: 1000                                   # weighted tokens of a call whose norm is 1
tiers: {gold: 4, free: 1}                                # shares, that is 1 / E_i of FairServe
apps:
  agent:
    per_minute: 1200                                     # for each tenant
    tokens_per_minute: 200000                            # for each tenant, as cost_per_minute
    max_calls: 30
    expected: {input: 800, system: 300, output: 120}     # for stages that are not listed
    stages:
      0: {input: 1500, system: 300, output: 50}
    public_system: |-                                    # |- removes the newline at the end
      You are a helpful agent.

Chats whose first message is the system message `public_system`, word for word, share its cached prefix across tenants.
A request's weight is its tier's share times its norm. The norm is 1 unless the API key alone determines the request's
app (a key with one app or none). The norm can fall to half of the smallest prior divided by `reference_tokens`. A
worker's fairness bound grows when a request arrives whose weight is smaller than all weights before.
"""

from dataclasses import fields

from serving.cost import MAX_WEIGHT
from serving.document import ConfigEntry, read
from serving.names import normalized
from throttler.core.profiles import AppProfile, Expectation, Profiles, RateLimits, TokenWeights

SECONDS = ("idle_ttl", "max_age")
MAX_DIGITS = 9  # in the number of a stage


def parse(text: str, file: str, defaults: RateLimits) -> Profiles:
    """Parse profiles; limits that `text` does not set take their value from `defaults`.

    Raise ConfigError, which names the file, the line and the key.
    """
    top = read(text, file).fields("limits", "weights", "reference_tokens", "tiers", "apps")
    limits = _limits(top["limits"], defaults) if "limits" in top else defaults
    apps = {name: _app(entry, limits) for name, entry in _apps(top).items()}
    reference = top["reference_tokens"].positive() if "reference_tokens" in top else Profiles().reference_tokens
    return Profiles(
        limits=limits,
        apps=apps,
        tiers={name: entry.positive(MAX_WEIGHT) for name, entry in _named(top, "tiers").items()},
        weights=_weights(top["weights"]) if "weights" in top else TokenWeights(),
        reference_tokens=reference,
    )


def _named(top: dict[str, ConfigEntry], key: str) -> dict[str, ConfigEntry]:
    return top[key].named() if key in top else {}


def _apps(top: dict[str, ConfigEntry]) -> dict[str, ConfigEntry]:
    apps: dict[str, ConfigEntry] = {}
    for key, entry in _named(top, "apps").items():
        try:
            name = normalized(key)
        except ValueError as error:
            raise entry.complaint(str(error)) from error
        if name in apps:
            raise entry.complaint("given twice")
        apps[name] = entry
    return apps


def _limits(entry: ConfigEntry, defaults: RateLimits) -> RateLimits:
    names = [field.name for field in fields(RateLimits)]
    given = {
        name: value.positive() if name in SECONDS else value.count() for name, value in entry.fields(*names).items()
    }
    return RateLimits(**{name: getattr(defaults, name) for name in names} | given)


def _weights(entry: ConfigEntry) -> TokenWeights:
    return TokenWeights(**{name: value.amount() for name, value in entry.fields("alpha", "beta", "gamma").items()})


def _app(entry: ConfigEntry, limits: RateLimits) -> AppProfile:
    values = entry.fields(
        "per_minute", "max_calls", "tokens_per_minute", "cost_per_minute", "expected", "stages", "public_system"
    )
    stages = {_stage(name, value): _expectation(value) for name, value in _named(values, "stages").items()}
    return AppProfile(
        per_minute=values["per_minute"].count() if "per_minute" in values else limits.app_per_minute,
        max_calls=values["max_calls"].count() if "max_calls" in values else limits.max_calls,
        tokens_per_minute=_count(values, "tokens_per_minute", limits.app_tokens_per_minute),
        cost_per_minute=_count(values, "cost_per_minute", limits.app_cost_per_minute),
        expected=_expectation(values["expected"]) if "expected" in values else None,
        stages=stages,
        public_system=values["public_system"].text() if "public_system" in values else "",
    )


def _count(values: dict[str, ConfigEntry], key: str, default: int | None) -> int | None:
    return values[key].count() if key in values else default


def _stage(name: str, entry: ConfigEntry) -> int:
    if not name.isdecimal() or len(name) > MAX_DIGITS:
        raise entry.complaint(f"expected a stage's number, 0 for the first call, got {name!r}")
    return int(name)


def _expectation(entry: ConfigEntry) -> Expectation:
    values = {name: value.amount() for name, value in entry.fields("input", "system", "output").items()}
    if not any(values.values()):
        raise entry.complaint("expects no tokens at all")
    return Expectation(**values)

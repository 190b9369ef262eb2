"""Limits of users, apps, tenants and interactions, and the tokens that apps' calls are expected to need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from throttler.core.budget import Budget

DEFAULT_APP = "default"
DEFAULT_PRICE = "default"  # of models that have none of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits of users, apps, tenants and interactions; raises ValueError unless every limit is positive."""

    user_per_minute: int = 60  # T_user (T_g in FairServe Alg. 1 line 5)
    app_per_minute: int = 600  # T_app per tenant (T_a in FairServe Alg. 1 line 6), for apps without their own limit
    max_calls: int = 64  # calls of one interaction, for apps without their own limit
    idle_ttl: float = 120.0  # seconds without a call in flight after which an interaction closes
    max_age: float = 3600.0  # seconds after which an interaction closes; time with a call in flight does not count
    kappa: int = 5  # protected calls per client and minute, as a multiple of T_user
    max_interactions: int = 256  # open interactions per client; one more closes the client's longest idle one
    tenant_per_minute: int | None = None  # T_tenant, of all users and apps of a tenant together; None: no such limit
    budgets: tuple[Budget, ...] = ()  # of every user, app, tenant, key and interaction

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ValueError(f"{each.name}: must be positive, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The tokens that a call normally needs: FairServe's N_I, N_S and N_O of one (app, stage)."""

    input: float = 0.0  # prompt tokens without those of system messages
    system: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWeights:
    """The weights alpha, beta and gamma of FairServe equation 2, with the paper's values."""

    alpha: float = 1.0  # input
    beta: float = 2.0  # system
    gamma: float = 1.0  # output

    def weigh(self, tokens: Expectation) -> float:
        """Return `alpha N_I + beta N_S + gamma N_O`, in weighted tokens."""
        return self.alpha * tokens.input + self.beta * tokens.system + self.gamma * tokens.output


@dataclass(frozen=True, slots=True, kw_only=True)
class AppProfile:
    """The limits and priors of one app. Without `expected`, stages that are not in `stages` have the norm 1."""

    per_minute: int
    max_calls: int
    budgets: tuple[Budget, ...] = ()  # in place of the general ones of the same names
    expected: Expectation | None = None
    stages: Mapping[int, Expectation] = field(default_factory=dict)
    public_system: str = ""  # a system prompt that is not secret: all tenants share its cached prefix

    def prior(self, stage: int) -> Expectation | None:
        """Return the expectation for a call of `stage` before any was learned; None if there is no prior."""
        return self.stages.get(stage, self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model's tokens, in billionths of the currency for each: prompt tokens, cached ones, output."""

    input: int = 0
    cached: int = 0
    output: int = 0

    def of(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        """Return the price of tokens in billionths; the cached ones are not among those of the prompt."""
        return self.input * prompt_tokens + self.cached * cached_tokens + self.output * output_tokens


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """A deployment's limits and app profiles; an app without a profile has the profile of the app `default`."""

    limits: RateLimits = field(default_factory=RateLimits)
    apps: Mapping[str, AppProfile] = field(default_factory=dict)
    tenants: Mapping[str, tuple[Budget, ...]] = field(
        default_factory=dict
    )  # in place of general ones of the same names
    prices: Mapping[str, Price] = field(default_factory=dict)  # by model
    tiers: Mapping[str, float] = field(default_factory=dict)  # name -> share, which is FairServe's 1 / E_i
    weights: TokenWeights = field(default_factory=TokenWeights)
    reference_tokens: float = 1000.0  # w_ref: the weighted tokens of a call whose norm is 1
    default: AppProfile = field(init=False)

    def __post_init__(self) -> None:
        plain = AppProfile(
            per_minute=self.limits.app_per_minute,
            max_calls=self.limits.max_calls,
        )
        object.__setattr__(self, "default", self.apps.get(DEFAULT_APP, plain))

    def app(self, name: str) -> AppProfile:
        return self.apps.get(name, self.default)

    def price(self, model: str) -> Price:
        """Return the price of the tokens of `model`; nothing where there are no prices."""
        return self.prices.get(model) or self.prices.get(DEFAULT_PRICE) or FREE

    @property
    def has_budgets(self) -> bool:
        return bool(self.limits.budgets or any(self.tenants.values()) or any(app.budgets for app in self.apps.values()))

    def budgets(self, tenant: str, app: str) -> Sequence[Budget]:
        """Return the budgets that hold for calls of `tenant` and `app`, interactions' own ones included."""
        own = (*self.app(app).budgets, *self.tenants.get(tenant, ()))
        return list(({each.name: each for each in self.limits.budgets} | {each.name: each for each in own}).values())

    def interaction_budgets(self, app: str) -> Sequence[Budget]:
        return [budget for budget in self.budgets("", app) if budget.per == "interaction"]


FREE = Price()

"""Limits of users, apps, tenants and interactions, and the tokens that apps' calls are expected to need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_APP = "default"


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
    # Of tokens, and of cost units, per minute; None: there is no such limit. Those of apps count per tenant.
    user_tokens_per_minute: int | None = None
    app_tokens_per_minute: int | None = None
    tenant_tokens_per_minute: int | None = None
    user_cost_per_minute: int | None = None
    app_cost_per_minute: int | None = None
    tenant_cost_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}: must be positive, got {value!r}")

    @property
    def protected_per_minute(self) -> int:
        """The most calls per client and minute that an interaction in progress protects."""
        return self.kappa * self.user_per_minute


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
    tokens_per_minute: int | None = None
    cost_per_minute: int | None = None
    expected: Expectation | None = None
    stages: Mapping[int, Expectation] = field(default_factory=dict)
    public_system: str = ""  # a system prompt that is not secret: all tenants share its cached prefix

    def prior(self, stage: int) -> Expectation | None:
        """Return the expectation for a call of `stage` before any was learned; None if there is no prior."""
        return self.stages.get(stage, self.expected)


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """A deployment's limits and app profiles; an app without a profile has the profile of the app `default`."""

    limits: RateLimits = field(default_factory=RateLimits)
    apps: Mapping[str, AppProfile] = field(default_factory=dict)
    tiers: Mapping[str, float] = field(default_factory=dict)  # name -> share, which is FairServe's 1 / E_i
    weights: TokenWeights = field(default_factory=TokenWeights)
    reference_tokens: float = 1000.0  # w_ref: the weighted tokens of a call whose norm is 1
    default: AppProfile = field(init=False)

    def __post_init__(self) -> None:
        plain = AppProfile(
            per_minute=self.limits.app_per_minute,
            max_calls=self.limits.max_calls,
            tokens_per_minute=self.limits.app_tokens_per_minute,
            cost_per_minute=self.limits.app_cost_per_minute,
        )
        object.__setattr__(self, "default", self.apps.get(DEFAULT_APP, plain))

    def app(self, name: str) -> AppProfile:
        """Return the profile of the app `name`, or the default profile."""
        return self.apps.get(name, self.default)

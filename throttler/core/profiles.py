"""What a deployment allows and expects: limits of users, apps and interactions, and what apps' calls normally need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_APP = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Raises ValueError unless every limit is positive."""

    user_per_minute: int = 60  # T_user: FairServe Alg. 1 line 5, T_g
    app_per_minute: int = 600  # T_app, of each tenant: FairServe Alg. 1 line 6, T_a; of apps without their own
    max_calls: int = 64  # of one interaction, of apps without a limit of their own
    idle_ttl: float = 120.0  # seconds without a call in flight until an interaction ends
    max_age: float = 3600.0  # seconds an interaction lasts, not counting those with a call in flight
    kappa: int = 5  # protected calls per client and minute, as a multiple of T_user
    max_interactions: int = 256  # open ones per client; one more ends the client's longest idle one

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name}: must be positive, got {value!r}")

    @property
    def protected_per_minute(self) -> int:
        """The most calls per client and minute that an interaction in progress protects."""
        return self.kappa * self.user_per_minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The tokens that a call normally needs: FairServe's N_I, N_S and N_O of one (app, stage)."""

    input: float = 0.0  # of the prompt, system messages not counted
    system: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWeights:
    """FairServe equation 2: alpha, beta and gamma, with the paper's values."""

    alpha: float = 1.0  # input
    beta: float = 2.0  # system
    gamma: float = 1.0  # output

    def weigh(self, tokens: Expectation) -> float:
        """`alpha N_I + beta N_S + gamma N_O`."""
        return self.alpha * tokens.input + self.beta * tokens.system + self.gamma * tokens.output


@dataclass(frozen=True, slots=True, kw_only=True)
class AppProfile:
    """One app. Without `expected` nothing is expected of stages that are not listed: their norm is 1."""

    per_minute: int
    max_calls: int
    expected: Expectation | None = None
    stages: Mapping[int, Expectation] = field(default_factory=dict)
    public_system: str = ""  # a system prompt that is no secret, word for word: all tenants share its cached prefix

    def prior(self, stage: int) -> Expectation | None:
        """What is expected of a call of `stage` before anything was learned."""
        return self.stages.get(stage, self.expected)


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """A deployment's limits and its apps; an app without a profile is the app `default`."""

    limits: RateLimits = field(default_factory=RateLimits)
    apps: Mapping[str, AppProfile] = field(default_factory=dict)
    tiers: Mapping[str, float] = field(default_factory=dict)  # name -> share, which is 1 / E_i
    weights: TokenWeights = field(default_factory=TokenWeights)
    reference_tokens: float = 1000.0  # w_ref: the weighted tokens of a call whose norm is 1
    default: AppProfile = field(init=False)

    def __post_init__(self) -> None:
        plain = AppProfile(per_minute=self.limits.app_per_minute, max_calls=self.limits.max_calls)
        object.__setattr__(self, "default", self.apps.get(DEFAULT_APP, plain))

    def app(self, name: str) -> AppProfile:
        """The profile that `name` has."""
        return self.apps.get(name, self.default)

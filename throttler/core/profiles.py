"""What a deployment allows: limits of users, apps and interactions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises ValueError unless every limit is positive and `kappa` at least 1."""

    user_per_minute: int = 60  # T_user: FairServe Alg. 1 line 5, T_g
    app_per_minute: int = 600  # T_app: FairServe Alg. 1 line 6, T_a
    max_calls: int = 64  # of one interaction
    idle_ttl: float = 120.0  # seconds without a call in flight until an interaction ends
    max_age: float = 3600.0  # seconds an interaction lasts, not counting those with a call in flight
    kappa: int = 5  # protected calls per client and minute, as a multiple of T_user

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name}: must be positive, got {value!r}")

    @property
    def protected_per_minute(self) -> int:
        """The most calls per client and minute that an interaction in progress protects."""
        return self.kappa * self.user_per_minute

"""Options of every service that throttles: default, help text, unit and the situation in which to change them."""

from dataclasses import dataclass
from typing import NamedTuple

from serving.config import ConfigError, option, require
from serving.service_options import ServiceOptions
from throttler.core.profiles import RateLimits
from throttler.core.throttles import THROTTLES


class ThrottleChoice(NamedTuple):
    """A throttle's name in THROTTLES, and the calls per minute that each client, and each app of a tenant, may make.

    The file of profiles may say other limits.
    """

    name: str
    user_per_minute: int
    app_per_minute: int

    @classmethod
    def parse(cls, text: str) -> "ThrottleChoice":
        """Return what `name[:calls of a client[,calls of an app]]` says; raise ConfigError."""
        name, _, numbers = text.partition(":")
        require(name in THROTTLES, f"throttle: must be one of {', '.join(THROTTLES)}, got {name!r}")
        limits = dict(zip(("user_per_minute", "app_per_minute"), numbers.split(","), strict=False))
        require(numbers.count(",") < len(cls._fields) - 1, f"throttle: expected {name}:CALLS,CALLS, got {text!r}")
        return cls(name, *(_limit(key, limits.get(key, "")) for key in cls._fields[1:]))


def _limit(name: str, text: str) -> int:
    if not text:
        return int(getattr(RateLimits(), name))
    try:
        limit = int(text)
    except ValueError as error:
        raise ConfigError(f"throttle: {name}: expected a whole number, got {text!r}") from error
    require(limit > 0, f"throttle: {name}: must be above 0, got {limit}")
    return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleOptions(ServiceOptions):
    """The options from which a service makes its throttler; see ServiceOptions."""

    profiles: str = option(
        "",
        "This YAML file holds limits, tiers and app profiles. Without it the limits of `throttle` apply to every app.",
        unit="path",
        change_when="Users or apps need different limits, or their interactions need different numbers of tokens.",
    )
    redis: str = option(
        "",
        "Gateways and rate limit services share limits through the Redis at this URL. Without it this process counts "
        "by itself.",
        unit="URL",
        change_when="More than one gateway or rate limit service runs.",
    )
    ledger: str = option(
        "",
        "Budgets and usage are kept in the file at this path, and survive restarts. Processes of one machine may share "
        "it. With `redis` budgets are kept there, and the file holds only this gateway's usage.",
        unit="path",
        change_when="A budget lasts longer than a process, and there is no Redis.",
    )
    throttle: str = option(
        "oit",
        "`oit` refuses calls above the limits only while workers are overloaded, and lets interactions in progress "
        "continue; `rpm` refuses every call above the limits; `none` refuses no call. The limits are 60 calls per "
        "minute of each client and 600 of each app of a tenant, others with `oit:120,1200`.",
        unit="`oit`, `rpm` or `none`[:numbers]",
        change_when="A contract limits calls per minute even while workers are idle (`rpm`), a proxy limits calls "
        "before they arrive (`none`), or clients need more calls while workers are overloaded.",
    )

    def __post_init__(self) -> None:
        ServiceOptions.__post_init__(self)
        ThrottleChoice.parse(self.throttle)

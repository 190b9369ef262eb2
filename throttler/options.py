"""Options of every service that throttles: default, help text, unit and the situation in which to change them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from serving.config import ConfigError, option, require
from serving.retired import constant
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


class ThrottleOptions(Protocol):
    """The options from which a service makes its throttler."""

    @property
    def secret(self) -> str:
        """The secret that signs interactions' tokens."""

    @property
    def accepted_secret(self) -> str:
        """Another secret whose tokens are accepted; empty for none."""

    @property
    def throttle(self) -> str:
        """The throttle, with its limits where they are not the defaults; see ThrottleChoice."""

    @property
    def profiles(self) -> str:
        """The path of the profiles file; empty for none."""

    @property
    def cost(self) -> str:
        """The name of the cost function in whose units limits in cost units are."""

    @property
    def redis(self) -> str:
        """The URL of the Redis through which limits are shared; empty for none."""

    @property
    def ledger(self) -> str:
        """The path of the file that keeps budgets and usage; empty for none."""

    @property
    def gateways(self) -> int:
        """The number of processes that are assumed to share the limits until Redis reports it."""


_OPTIONS: Mapping[str, Callable[[], Any]] = {
    "profiles": partial(
        option,
        "",
        "This YAML file holds limits, tiers and app profiles. Without it the limits of `throttle` apply to every app.",
        unit="path",
        change_when="Users or apps need different limits, or their interactions need different numbers of tokens.",
    ),
    "redis": partial(
        option,
        "",
        "Gateways and rate limit services share limits through the Redis at this URL. Without it this process counts "
        "by itself.",
        unit="URL",
        change_when="More than one gateway or rate limit service runs.",
    ),
    "ledger": partial(
        option,
        "",
        "Budgets and usage are kept in the file at this path, and survive restarts. Processes of one machine may share "
        "it. With `redis` budgets are kept there, and the file holds only this gateway's usage.",
        unit="path",
        change_when="A budget lasts longer than a process, and there is no Redis.",
    ),
    # Of the processes that are assumed to share the limits until Redis reports their number.
    "gateways": partial(constant, 4),
    "throttle": partial(
        option,
        "oit",
        "`oit` refuses calls above the limits only while workers are overloaded, and lets interactions in progress "
        "continue; `rpm` refuses every call above the limits; `none` refuses no call. The limits are 60 calls per "
        "minute of each client and 600 of each app of a tenant, others with `oit:120,1200`.",
        unit="`oit`, `rpm` or `none`[:numbers]",
        change_when="A contract limits calls per minute even while workers are idle (`rpm`), a proxy limits calls "
        "before they arrive (`none`), or clients need more calls while workers are overloaded.",
    ),
}


def throttle_option(name: str) -> Any:
    """Return a new config field for the option `name`; raise KeyError if this module has no such option."""
    return _OPTIONS[name]()

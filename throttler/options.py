"""Options of every service that throttles: default, help text, unit and the situation in which to change them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from serving.config import option
from throttler.core.throttles import THROTTLES


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
        """The name of the throttle in THROTTLES."""

    @property
    def profiles(self) -> str:
        """The path of the profiles file; empty for none."""

    @property
    def user_per_minute(self) -> int:
        """The calls per minute of each client, unless the profiles file says otherwise."""

    @property
    def app_per_minute(self) -> int:
        """The calls per minute of each app of a tenant, unless the profiles file says otherwise."""

    @property
    def cost(self) -> str:
        """The name of the cost function in whose units limits in cost units are."""

    @property
    def redis(self) -> str:
        """The URL of the Redis through which limits are shared; empty for none."""

    @property
    def redis_password(self) -> str:
        """The password of Redis; empty for that of the URL."""

    @property
    def redis_ca(self) -> str:
        """The path of the authorities of Redis' certificate; empty for the system's."""

    @property
    def gateways(self) -> int:
        """The number of processes that are assumed to share the limits until Redis reports it."""


_OPTIONS: Mapping[str, Callable[[], Any]] = {
    "profiles": partial(
        option,
        "",
        "This YAML file holds limits, tiers and app profiles. Without it `user_per_minute` and `app_per_minute` "
        "apply to every app.",
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
    "gateways": partial(
        option,
        1,
        "This number of gateways and rate limit services is assumed to share the limits until Redis reports the actual "
        "number. Until then each of them admits up to its part of every limit.",
        unit="processes",
        change_when="More than one of them runs. Set the largest number to which you scale.",
    ),
    "throttle": partial(
        option,
        "oit",
        "`oit` refuses calls above the limits only while workers are overloaded, and lets interactions in progress "
        "continue; `rpm` refuses every call above the limits; `none` refuses no call.",
        choices=tuple(THROTTLES),
        change_when="A contract limits calls per minute even while workers are idle (`rpm`), or a proxy limits calls "
        "before they arrive (`none`).",
    ),
    "user_per_minute": partial(
        option,
        60,
        "Each client may make this number of calls per minute; `throttle` determines when the limit is enforced.",
        unit="calls per minute",
        change_when="Users need more calls while workers are overloaded, or `fairlead tune` recommends a number.",
    ),
    "app_per_minute": partial(
        option,
        600,
        "Each app of a tenant may make this number of calls per minute; `throttle` determines when the limit is "
        "enforced.",
        unit="calls per minute",
        change_when="An app has more than ten busy users.",
    ),
}


def throttle_option(name: str) -> Any:
    """Return a new config field for the option `name`; raise KeyError if this module has no such option."""
    return _OPTIONS[name]()

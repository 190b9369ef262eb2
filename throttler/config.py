"""The rate limit service's configuration."""

import re
from dataclasses import dataclass

from serving.config import (
    MIN_SECRET,
    ConfigError,
    addresses,
    check_listeners,
    check_positive,
    check_secrets,
    cost_function,
    option,
    require,
)
from serving.rpc.address import is_loopback
from serving.rpc.mutual_tls import InternalTlsOptions
from serving.shared_options import shared
from throttler.metrics_overload import metrics_urls
from throttler.options import throttle_option

ALLOW = "allow"
REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlerConfig(InternalTlsOptions):
    """The options of the rate limit service; serving.config describes where their values come from."""

    listen: str = option(
        "127.0.0.1:7060",
        "Envoy reaches the rate limit service at this address. With port 0 the system chooses a free port.",
        unit="host:port",
        change_when="Envoy runs on another machine. Then also set `proxy_secret`.",
    )
    secret: str = shared("secret")
    accepted_secret: str = shared("accepted_secret")
    proxy_secret: str = option(
        "",
        "Proxies send this secret as the metadata `x-fairlead-secret`. Without it every process that reaches the "
        "listener may ask.",
        unit="text",
        change_when="Other machines can reach the listener.",
    )
    insecure: bool = option(
        False,
        "The service may listen beyond this machine without `proxy_secret`.",
        change_when="The network lets only proxies reach the listener.",
    )
    scheduler: str = option(
        "",
        "The global scheduler listens at this address, and reports which pools are overloaded. Addresses of several "
        "schedulers are separated by commas. Without it, and without `overload_metrics`, the limits hold at all times.",
        unit="host:port",
        change_when="Limits of the throttle `oit` are to hold only while workers are overloaded.",
    )
    overload_metrics: str = option(
        "",
        "Prometheus metrics at these URLs, separated by commas, tell instead of a scheduler whether workers are "
        "overloaded. Each address of a host is asked every 0.5 s, and the values are added. After 3 s without an "
        "answer nothing counts as overloaded.",
        unit="URLs",
        change_when="The engines have no scheduler of Fairlead before them.",
    )
    overload_metric: str = option(
        "",
        "This metric is read at `overload_metrics`. Without a name it is the number of requests that wait in the "
        "engine, as vLLM, SGLang and TensorRT-LLM name it.",
        unit="name",
        change_when="Requests wait elsewhere: in the endpoint picker it is `fairlead_picker_waiting`.",
    )
    overload_threshold: float = option(
        10.0,
        "Workers are overloaded from this sum of the values at `overload_metrics` on.",
        unit="requests",
        change_when="So many requests wait before they are late, or the metric has another unit.",
    )
    domains: str = option(
        "fairlead",
        "The service decides about requests of these domains. Several domains are separated by commas.",
        unit="names",
        change_when="The rate limit filter of Envoy has another `domain`.",
    )
    unknown_domain: str = option(
        REFUSE,
        "Calls of a domain that is not in `domains` are refused (`refuse`), or admitted without being counted "
        "(`allow`).",
        choices=(REFUSE, ALLOW),
        change_when="One Envoy asks this service for domains that another service limits.",
    )
    profiles: str = throttle_option("profiles")
    redis: str = throttle_option("redis")
    redis_password: str = shared("redis_password")
    redis_ca: str = shared("redis_ca")
    gateways: int = throttle_option("gateways")
    throttle: str = throttle_option("throttle")
    user_per_minute: int = throttle_option("user_per_minute")
    app_per_minute: int = throttle_option("app_per_minute")
    cost: str = shared("cost")
    internal_certificate: str = shared("internal_certificate")
    internal_key: str = shared("internal_key")
    internal_authority: str = shared("internal_authority")
    health_listen: str = shared("health_listen")
    metrics: str = shared("metrics")
    log_level: str = shared("log_level")

    def __post_init__(self) -> None:
        check_secrets(self.secret, self.accepted_secret)
        if self.scheduler:
            addresses(self.scheduler, "scheduler")
        self._check_overload()
        check_listeners(self)
        cost_function(self.cost)
        check_positive(self, "user_per_minute", "app_per_minute", "gateways")
        require(all(self.domain_names), f"domains: expected name[,name], got {self.domains!r}")
        require(
            self.proxy_secret == "" or len(self.proxy_secret) >= MIN_SECRET,
            f"proxy_secret: needs at least {MIN_SECRET} characters",
        )
        require(
            self.insecure or self.proxy_secret != "" or is_loopback(self.listen),
            f"listen: {self.listen} is reachable from other machines and there is no proxy_secret: anyone could use up "
            "the limits of others; give --proxy-secret, or accept it with --insecure",
        )

    def _check_overload(self) -> None:
        check_positive(self, "overload_threshold")
        require(not (self.scheduler and self.overload_metrics), "overload_metrics: must not be given with scheduler")
        require(self.overload_metrics != "" or not self.overload_metric, "overload_metric: needs overload_metrics")
        is_name = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?", self.overload_metric)
        require(is_name is not None, f"overload_metric: expected a metric's name, got {self.overload_metric!r}")
        if self.overload_metrics:
            try:
                metrics_urls(self.overload_metrics)
            except ValueError as error:
                raise ConfigError(f"overload_metrics: {error}") from error

    @property
    def domain_names(self) -> frozenset[str]:
        """Return the names in `domains`."""
        return frozenset(name.strip() for name in self.domains.split(","))

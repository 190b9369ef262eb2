"""The rate limit service's configuration."""

from dataclasses import dataclass

from serving.config import (
    MIN_SECRET,
    ConfigError,
    addresses,
    option,
    require,
)
from serving.rpc.address import is_loopback
from throttler.metrics_overload import OverloadRule
from throttler.options import ThrottleOptions

OTHERS = "*"  # among the domains


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlerConfig(ThrottleOptions):
    """The options of the rate limit service; serving.config describes where their values come from."""

    listen: str = option(
        "127.0.0.1:7060",
        "Envoy reaches the rate limit service at this address. With port 0 the system chooses a free port.",
        unit="host:port",
        change_when="Envoy runs on another machine. Then also set `proxy_secret`.",
    )
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
        "overloaded: from 10 requests on that wait in the engine, as vLLM, SGLang and TensorRT-LLM name them, or from "
        "what follows the last URL, as in `http://picker:9464/metrics#fairlead_picker_waiting>=20`. Each address of "
        "a host is asked every 0.5 s, and the values are added. After 3 s without an answer nothing is overloaded.",
        unit="URLs[#metric][>=number]",
        change_when="The engines have no scheduler of Fairlead before them.",
    )
    domains: str = option(
        "fairlead",
        "The service decides about requests of these domains, which are separated by commas, and refuses others; with "
        "`*` among them it admits others without counting them.",
        unit="names",
        change_when="The rate limit filter of Envoy has another `domain`, or another service limits some of them.",
    )

    def __post_init__(self) -> None:
        ThrottleOptions.__post_init__(self)
        if self.scheduler:
            addresses(self.scheduler, "scheduler")
        self._check_overload()
        require(all(self._domains), f"domains: expected name[,name], got {self.domains!r}")
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
        require(not (self.scheduler and self.overload_metrics), "overload_metrics: must not be given with scheduler")
        if self.overload_metrics:
            try:
                OverloadRule.parse(self.overload_metrics)
            except ValueError as error:
                raise ConfigError(f"overload_metrics: {error}") from error

    @property
    def domain_names(self) -> frozenset[str]:
        return frozenset(self._domains) - {OTHERS}

    @property
    def admits_unknown_domains(self) -> bool:
        """Whether calls of other domains are admitted, without being counted."""
        return OTHERS in self._domains

    @property
    def _domains(self) -> list[str]:
        return [name.strip() for name in self.domains.split(",")]

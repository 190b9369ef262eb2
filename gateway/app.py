"""The gateway's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from fairlead.v1 import throttling_pb2_grpc, traces_pb2_grpc
from gateway.admission import Admission
from gateway.call import Call
from gateway.call_log import CallLog
from gateway.driver import CallDriver, Front
from gateway.http.application import HttpApplication
from gateway.http.server import HttpServer
from gateway.metrics import CallMetrics, PlacementMetrics, StateMetrics, ThrottlingMetrics
from gateway.open_call_limiter import OpenCallLimiter
from gateway.operators import ThrottlingService, TracesService
from gateway.reload import follow
from gateway.service import InferenceService, add_inference_to_server
from gateway.tenants import CACHE_SCOPES, Tenants
from gateway.upstream.cluster import Cluster
from serving.config import ConfigError, addresses, check_listeners, load, option, require
from serving.document import text_of
from serving.environment import ServiceName
from serving.process import Serving, configure_logging, run
from serving.redis_access import open_redis
from serving.rpc.channel import MAX_REQUEST_BYTES
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls
from serving.rpc.server import Server
from serving.rpc.tls import Certificate
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import GATEWAY
from serving.telemetry.traces import TailSampler, Traces, otlp_processor
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.quota import LocalQuota
from throttler.core.registry import THROTTLES
from throttler.core.throttle import WINDOW_SECONDS
from throttler.profiles_file import parse
from throttler.redis_store import RedisStore
from throttler.store import LocalStore, Store
from throttler.throttler import Throttler

log = logging.getLogger(__name__)
MIN_SECRET = 16
SHARING = "shared-limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """See serving.config for where values come from."""

    listen: str = option("127.0.0.1:7000", "address to listen on, host:port; port 0 picks a free one")
    scheduler: str = option("127.0.0.1:7050", "address of the global scheduler, or of several: host:port,host:port")
    secret: str = option("", "the cluster secret, at least 16 characters; required")
    keys: str = option("", "YAML file of API keys; default: one tenant, no keys")
    profiles: str = option("", "YAML file of limits, tiers and app profiles; default: the limits below for every app")
    http_listen: str = option("", "address that answers OpenAI's HTTP API, host:port; default: none")
    redis: str = option("", "URL of the Redis through which gateways share limits; default: this one is alone")
    redis_password: str = option("", "its password, if the URL has none")
    redis_ca: str = option("", "file of the authorities that may have signed its certificate, for rediss:// URLs")
    gateways: int = option(1, "how many gateways share limits, as far as this one knows before Redis has told it")
    tls_certificate: str = option("", "PEM file of the listener's certificate chain; default: no TLS")
    tls_key: str = option("", "PEM file of its key")
    internal_certificate: str = option("", "PEM file: with key and authority, mutual TLS between services")
    internal_key: str = option("", "PEM file: the internal certificate's key")
    internal_authority: str = option("", "PEM file: the authority of all internal certificates")
    health_listen: str = option("", "address that answers health checks in plain text, for probes; default: none")
    insecure: bool = option(False, "allow to listen beyond this machine without API keys")
    cache_scope: str = option("tenant", "who shares cached prefixes with whom", choices=tuple(CACHE_SCOPES))
    throttle: str = option("oit", "who is refused, and when", choices=tuple(THROTTLES))
    user_per_minute: int = option(60, "calls per client and minute, enforced as the throttle says")
    app_per_minute: int = option(600, "calls per tenant, app and minute, enforced as the throttle says")
    max_streams_per_client: int = option(256, "most open calls of one client, before only protected ones are let in")
    max_streams: int = option(4096, "most open calls in all")
    request_seconds: float = option(30.0, "seconds that a request may take to arrive, once it is read")
    reader_seconds: float = option(
        60.0, "seconds after which a caller that reads nothing, though all is there, is given up"
    )
    drain_seconds: float = option(20.0, "seconds that open calls may take to finish after SIGTERM")
    admin_secret: str = option("", "the secret that operators' calls carry; default: the cluster secret")
    metrics: str = option("", "address of the Prometheus endpoint, host:port; default: none")
    trace_ratio: float = option(1.0, "part, 0 to 1, of the traces exported of those that are neither failed nor slow")
    slow_seconds: float = option(30.0, "a call that takes so many seconds has its trace exported in any case")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        addresses(self.scheduler, "scheduler")
        check_listeners(self)
        positive = (
            "user_per_minute",
            "app_per_minute",
            "max_streams_per_client",
            "max_streams",
            "drain_seconds",
            "gateways",
        )
        for name in (*positive, "request_seconds", "reader_seconds", "slow_seconds"):
            require(getattr(self, name) > 0, f"{name}: must be above 0, got {getattr(self, name)}")
        require(
            (self.tls_certificate == "") == (self.tls_key == ""), "tls_certificate, tls_key: give both of them, or none"
        )
        require(0 <= self.trace_ratio <= 1, f"trace_ratio: must be between 0 and 1, got {self.trace_ratio}")
        require(
            self.insecure or self.keys != "" or self.is_loopback,
            f"listen: {self.listen} is reachable from other machines and no keys are given: anyone could use the "
            "models; give --keys, or accept it with --insecure",
        )

    @property
    def certificate(self) -> Certificate | None:
        """What the listener shows; raises ConfigError."""
        return Certificate(self.tls_certificate, self.tls_key) if self.tls_certificate else None

    @property
    def mutual_tls(self) -> MutualTls | None:
        """What this service shows the others; raises ConfigError."""
        return load_mutual_tls(self.internal_certificate, self.internal_key, self.internal_authority)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listeners."""
        return all(is_loopback(address) for address in (self.listen, self.http_listen) if address)


class Gateway:
    """One process's objects and their order of start and end."""

    def __init__(self, config: GatewayConfig, profiles: Profiles, tenants: Tenants) -> None:
        self._config = config
        keep = TailSampler(config.trace_ratio, config.slow_seconds)
        self._traces = Traces(otlp_processor(os.environ), keep)
        self._metrics = Metrics(GATEWAY, config.metrics, os.environ)
        self._changed = asyncio.Event()
        self._cluster = Cluster(
            addresses(config.scheduler, "scheduler"), config.secret, self._changed.set, config.mutual_tls
        )
        self._call_log = CallLog(self._traces, CallMetrics(self._metrics.meter))
        self._tenants = tenants
        self._throttler, self._store = connect(config, profiles, self._call_log.closed)
        ThrottlingMetrics(self._metrics.meter, self._call_log.accounting, self._store)
        PlacementMetrics(self._metrics.meter, self._cluster.placements)
        open_calls = OpenCallLimiter(per_client=config.max_streams_per_client, total=config.max_streams)
        self._states = StateMetrics(self._metrics.meter, lambda: open_calls.count, lambda: len(self._cluster.members))
        self._admission = Admission(
            cluster=self._cluster,
            tenants=tenants,
            throttler=self._throttler,
            profiles=profiles,
            open_calls=open_calls,
            cache_scope=CACHE_SCOPES[config.cache_scope],
        )
        certificate = config.certificate
        self._server = Server(
            config.listen,
            max_request_bytes=MAX_REQUEST_BYTES,
            request_seconds=config.request_seconds,
            credentials=certificate.credentials() if certificate else None,
            health_listen=config.health_listen,
        )
        self._http = (
            HttpServer(
                config.http_listen,
                HttpApplication(self._cluster.members, self._admission, self._drive, self._server.bodies),
                certificate.context() if certificate else None,
                config.request_seconds,
            )
            if config.http_listen
            else None
        )
        service = InferenceService(
            self._cluster, self._admission, self._call_log, self._server.bodies, config.reader_seconds
        )
        self._server.add(add_inference_to_server, service, "fairlead.v1.Inference")
        admin_secret = config.admin_secret or config.secret
        traces = TracesService(self._traces)
        self._server.add(traces_pb2_grpc.add_TracesServicer_to_server, traces, "fairlead.v1.Traces", admin_secret)
        accounts = ThrottlingService(self._call_log.accounting, self._cluster.placements, self._store)
        register = throttling_pb2_grpc.add_ThrottlingServicer_to_server
        self._server.add(register, accounts, "fairlead.v1.Throttling", admin_secret)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let open calls finish."""
        await self._metrics.start()
        await self._server.start()
        if self._http is not None:
            await self._http.start()
        log.info(
            "listening",
            extra={
                "service": "gateway",
                "port": self._server.port,
                "http_port": self._http and self._http.port,
                "metrics_port": self._metrics.port,
                "health_port": self._server.health_port,
            },
        )
        if self._config.is_loopback and not self._config.keys:
            log.info("no API keys: everybody on this machine may use the models, and nobody else")
        if not (self._config.is_loopback or self._config.tls_certificate):
            problem = "API keys cross it in clear" if self._config.keys else "anyone may use the models"
            log.warning("the listener is public and has no TLS: %s", problem, extra={"listen": self._config.listen})
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(task)
                for task in (
                    self._cluster.run(),
                    self._report_readiness(),
                    self._throttler.run(),
                    self._states.run(),
                    self._report_sharing(),
                    follow([file for file in (self._config.keys, self._config.profiles) if file], self._reload),
                )
            ]
            await stop.wait()
            log.info("draining")
            await self._server.set_ready(False)
            grace = self._config.drain_seconds
            stopping = [self._server.stop(grace)] + ([self._http.stop(grace)] if self._http is not None else [])
            await asyncio.gather(*stopping)
            for task in background:
                task.cancel()
        await self._cluster.close()
        await asyncio.gather(asyncio.to_thread(self._traces.shutdown), self._metrics.shutdown())

    def _drive(self, front: Front, call: Call) -> CallDriver:
        return CallDriver(front, self._cluster, self._call_log, call, self._config.reader_seconds)

    async def _report_readiness(self) -> None:
        """Ready while a worker is known; known through the scheduler, and still when that is away."""
        ready = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            if ready != bool(len(self._cluster.members)):
                ready = not ready
                await self._server.set_ready(ready)
                log.info("ready" if ready else "no worker", extra={"service": "gateway"})

    async def _report_sharing(self) -> None:
        """The health service's name SHARING says whether limits are shared as configured."""
        while True:
            await self._server.set_health(SHARING, not self._store.degraded)
            await self._store.changed.wait()
            self._store.changed.clear()

    def _reload(self) -> None:
        profiles = load_profiles(self._config)
        tenants = Tenants.load(self._config.keys, profiles.tiers)  # nothing is applied unless all of it is right
        self._throttler.configure(profiles)
        self._admission.configure(profiles)
        self._tenants.replace(tenants)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`, host:port."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connect(
    config: GatewayConfig, profiles: Profiles, closed: Callable[[FinishedInteraction], None]
) -> tuple[Throttler, Store]:
    """The configured throttler, and where it shares limits; raises ConfigError."""
    throttle, expectations = THROTTLES[config.throttle], Expectations(profiles)
    if not config.redis:
        limits = throttle(profiles, LocalQuota())
        store: Store = LocalStore()
    else:
        leases = LeasedQuota(WINDOW_SECONDS, config.gateways)
        limits = throttle(profiles, leases)
        store = RedisStore(open_store(config), leases, limits.window, expectations, window_seconds=WINDOW_SECONDS)
    return Throttler(Decider(limits, Interactions(config.secret, profiles), expectations), store, closed), store


def open_store(config: GatewayConfig) -> Redis:
    """The Redis that is configured; raises ConfigError."""
    try:
        return open_redis(config.redis, config.redis_password, config.redis_ca)
    except (ValueError, OSError) as error:
        raise ConfigError(f"redis: {error}") from error


def load_profiles(config: GatewayConfig) -> Profiles:
    """The profiles file over the configured limits; raises ConfigError."""
    limits = RateLimits(user_per_minute=config.user_per_minute, app_per_minute=config.app_per_minute)
    return parse(text_of(config.profiles), config.profiles, limits) if config.profiles else Profiles(limits=limits)


def prepare(argv: Sequence[str]) -> Serving:
    """The gateway as configured; raises ConfigError."""
    config = load(GatewayConfig, ServiceName.GATEWAY, argv, os.environ, prog="python -m gateway")
    profiles = load_profiles(config)
    tenants = Tenants.load(config.keys, profiles.tiers)
    configure_logging(config.log_level)

    async def serve(stop: asyncio.Event) -> None:
        await Gateway(config, profiles, tenants).run(stop)

    return serve


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    return run(lambda: prepare(argv))

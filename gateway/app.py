"""The gateway's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fairlead.errors import Unavailable
from fairlead.rpc.channel import PING_SECONDS
from fairlead.v1 import throttling_pb2_grpc, traces_pb2_grpc
from gateway.admission import Admission
from gateway.call_log import CallLog
from gateway.config import GatewayConfig
from gateway.core.client_limits import CallAdmission, HeldBytesLimiter, OpenCallLimiter
from gateway.core.response_store import ResponseStore
from gateway.driver import CallDrivers
from gateway.http.application import HttpApplication
from gateway.http.browser_policy import BrowserPolicy, HostNames
from gateway.http.server import FAREWELL_SECONDS, HttpServer
from gateway.interactions import CallInteractions
from gateway.metrics import CallMetrics, observe_interactions, observe_placements, observe_states
from gateway.operators import ThrottlingService, TracesService
from gateway.page.admin_channels import AdminChannels
from gateway.page.page import ClusterView, Page
from gateway.service import InferenceService, add_inference_to_server
from gateway.tenants import CACHE_SCOPES, Tenants
from gateway.tokenization import Tokenization
from gateway.upstream.cluster import Cluster
from gateway.usage import UsageLedger
from serving.config import ConfigError, addresses, load, require
from serving.environment import BUTTONS, ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run
from serving.reload import follow
from serving.rpc.address import is_loopback
from serving.rpc.channel import MAX_REQUEST_BYTES
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import GATEWAY
from serving.telemetry.traces import TailSampler, Traces, otlp_processor
from throttler.assembly import load_profiles, make_throttler, shared_redis
from throttler.core.profiles import Profiles
from throttler.metrics import observe_sharing
from throttler.options import ThrottleChoice
from throttler.store import report_sharing

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from gateway.shared_interactions import SharedInteractions
    from gateway.shared_usage import SharedUsage

log = logging.getLogger(__name__)
MIB = 2**20
FORGET_SECONDS = 5.0


class Gateway:
    """The objects of one process, and the order in which they start and stop."""

    def __init__(self, config: GatewayConfig, profiles: Profiles, tenants: Tenants) -> None:
        self._config = config
        self._certificate = config.certificate
        keep = TailSampler(_trace_ratio(os.environ))
        self._traces = Traces(otlp_processor(os.environ), keep)
        self._metrics = Metrics(GATEWAY, config.metrics, os.environ)
        self._changed = asyncio.Event()
        self._cluster = Cluster(
            addresses(config.scheduler, "scheduler"), config.secret, self._changed.set, config.mutual_tls
        )
        self._call_log = CallLog(self._traces, CallMetrics(self._metrics.meter))
        self._tenants = tenants
        ledger = _usage_ledger(config.ledger)
        redis = shared_redis(config)
        self._usage = shared_usage(config, ledger) or ledger
        self._throttler, self._store = make_throttler(config, profiles, self._call_log.closed, redis)
        observe_interactions(self._metrics.meter, self._call_log.accounting)
        observe_sharing(self._metrics.meter, self._store)
        observe_placements(self._metrics.meter, self._cluster.placements)
        open_calls = OpenCallLimiter(per_client=config.open_calls_per_client, total=config.max_streams)
        self._responses = ResponseStore(config.response_store_mib * MIB, config.response_store_seconds)
        observe_states(
            self._metrics.meter,
            lambda: open_calls.count,
            lambda: len(self._cluster.members),
            lambda: self._responses.size,
        )
        waiting_prompts = HeldBytesLimiter(config.waiting_prompts_mib * MIB, "prompts wait to be tokenized")
        held_outputs = HeldBytesLimiter(config.held_outputs_mib * MIB, "outputs wait to be read or to be complete")
        self._shared = shared_interactions(redis)
        tell = None if self._shared is None else self._shared.tell
        self._interactions = CallInteractions(config.secret, config.accepted_secret, tell)
        self._admission = Admission(
            cluster=self._cluster,
            tenants=tenants,
            throttler=self._throttler,
            profiles=profiles,
            calls=CallAdmission(self._throttler.decider, open_calls),
            waiting_prompts=waiting_prompts,
            cache_scope=CACHE_SCOPES[config.cache_scope],
            interactions=self._interactions,
            usage=ledger,
        )
        self._calls = CallDrivers(self._admission, self._cluster, self._call_log, held_outputs, config.reader_seconds)
        self._server = self._make_server()
        api = HttpApplication(
            self._cluster.members,
            self._admission,
            Tokenization(self._cluster, self._admission.identify, open_calls, waiting_prompts),
            self._calls.drive,
            self._server.bodies,
            held_outputs,
            self._responses,
            self._browsers(needs_key=bool(config.keys)),
            self._page_address,
        )
        self._http = self._make_http(api) if config.http_listen else None
        self._page = self._make_page(api) if config.page_listen else None
        self._add_services()

    def _add_services(self) -> None:
        """Register what the gRPC listener serves."""
        config = self._config
        operators = (config.admin_secret,) if config.admin_secret else (config.secret, config.accepted_secret)
        service = InferenceService(self._cluster, self._admission, self._calls, self._server.bodies)
        self._server.add(add_inference_to_server, service, "fairlead.v1.Inference")
        traces = TracesService(self._traces)
        self._server.add(traces_pb2_grpc.add_TracesServicer_to_server, traces, "fairlead.v1.Traces", *operators)
        accounts = ThrottlingService(self._call_log.accounting, self._cluster.placements, self._store, self._usage)
        register = throttling_pb2_grpc.add_ThrottlingServicer_to_server
        self._server.add(register, accounts, "fairlead.v1.Throttling", *operators)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then let open calls finish for at most `drain_seconds`."""
        await self._metrics.start()
        await self._server.start()
        for listener in self._listeners:
            await listener.start()
        log.info(
            "listening",
            extra={
                "service": "gateway",
                "port": self._server.port,
                "http_port": self._http and self._http.port,
                "page_port": self._page and self._page.port,
                "metrics_port": self._metrics.port,
                "health_port": self._server.health_port,
                "tls": bool(self._config.tls),
            },
        )
        if self._config.is_loopback and not self._config.keys:
            log.info("no API keys: every process on this machine may use the models, and no other machine")
        if not (self._config.is_loopback or self._config.tls):
            problem = "API keys cross it in clear" if self._config.keys else "anyone may use the models"
            log.warning("the listener is public and has no TLS: %s", problem, extra={"listen": self._config.listen})
        files = [file for file in (self._config.keys, self._config.profiles) if file]
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(task)
                for task in (
                    self._cluster.run(),
                    self._report_readiness(),
                    self._throttler.run(),
                    report_sharing(self._store, self._server),
                    *([self._page.run()] if self._page is not None else []),
                    *([self._shared.run(self._interactions.learn)] if self._shared is not None else []),
                    self._forget_responses(),
                    self._usage.run(),
                    *([follow(files, self._reload)] if files else []),
                )
            ]
            await stop.wait()
            await self._drain()
            for task in background:
                task.cancel()
        await self._cluster.close()
        await asyncio.gather(asyncio.to_thread(self._traces.shutdown), self._metrics.shutdown())

    async def _drain(self) -> None:
        """Let open calls finish for at most `drain_seconds`; end the others, and tell their callers."""
        log.info("draining")
        await self._server.set_ready(False)
        grace = self._config.drain_seconds
        unavailable = Unavailable(f"the gateway stops, and the call did not finish within {grace:g} s; repeat it")
        ending = asyncio.get_running_loop().call_later(grace, self._calls.end, unavailable)
        await asyncio.gather(
            self._server.stop(grace + FAREWELL_SECONDS), *(listener.stop(grace) for listener in self._listeners)
        )
        ending.cancel()

    @property
    def _listeners(self) -> list[HttpServer | Page]:
        return [listener for listener in (self._http, self._page) if listener is not None]

    def _make_server(self) -> Server:
        config = self._config
        certificate = self._certificate
        return Server(
            config.listen,
            max_request_bytes=MAX_REQUEST_BYTES,
            request_seconds=config.request_seconds,
            connection_seconds=config.connection_seconds,
            ping_seconds=PING_SECONDS,
            credentials=certificate.credentials() if certificate else None,
            health_listen=config.health_listen,
        )

    def _make_http(self, api: HttpApplication) -> HttpServer:
        config = self._config
        certificate = self._certificate
        return HttpServer(
            config.http_listen,
            api,
            certificate.context() if certificate else None,
            seconds=config.request_seconds,
            reader_seconds=config.reader_seconds,
        )

    def _page_address(self) -> str:
        """Return where the page is; empty without one, and for strangers, of whom keys keep it a secret."""
        config = self._config
        if self._page is None or config.keys:
            return ""
        scheme = "https" if config.tls else "http"
        return f"{scheme}://{config.page_listen.rpartition(':')[0]}:{self._page.port}"

    def _browsers(self, *, needs_key: bool) -> BrowserPolicy:
        config = self._config
        listeners = [address for address in (config.http_listen, config.page_listen) if address]
        hosts = HostNames(config.hosts, is_public=not all(map(is_loopback, listeners)))
        return BrowserPolicy(None if needs_key or config.tls else hosts, config.origins, needs_key=needs_key)

    def _make_page(self, api: HttpApplication) -> Page:
        config = self._config
        secret = config.admin_secret or config.secret
        schedulers = AdminChannels(addresses(config.scheduler, "scheduler"), secret, config.mutual_tls)
        accounting = self._call_log.accounting
        throttle = ThrottleChoice.parse(config.throttle).name
        view = ClusterView(schedulers, self._cluster.members, self._throttler, throttle, accounting, self._traces)
        return Page(
            config.page_listen,
            view,
            self._traces,
            api,
            secret,
            self._browsers(needs_key=False),
            usage=self._usage,
            bodies=self._server.bodies,
            certificate=self._certificate,
            request_seconds=config.request_seconds,
            reader_seconds=config.reader_seconds,
            controls=os.environ.get(BUTTONS, ""),
        )

    async def _report_readiness(self) -> None:
        """Report ready while there is a member; members stay while no scheduler is reachable."""
        ready = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            if ready != bool(len(self._cluster.members)):
                ready = not ready
                await self._server.set_ready(ready)
                log.info("ready" if ready else "no worker", extra={"service": "gateway"})

    async def _forget_responses(self) -> None:
        """Free the memory of stored responses whose time is over."""
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            self._responses.forget(time.monotonic())

    def _reload(self) -> None:
        profiles = load_profiles(self._config)
        tenants = Tenants.load(self._config.keys, profiles.tiers)  # nothing is applied unless both files are valid
        self._throttler.configure(profiles)
        self._admission.configure(profiles)
        self._tenants.replace(tenants)


def shared_interactions(redis: "Redis | None") -> "SharedInteractions | None":
    """Return what shares interactions with other gateways, if there is a Redis."""
    if redis is None:
        return None
    from gateway.shared_interactions import SharedInteractions

    return SharedInteractions(redis)


def shared_usage(config: GatewayConfig, ledger: UsageLedger) -> "SharedUsage | None":
    """Return what gateways that share a Redis used together, if there is one."""
    if (redis := shared_redis(config)) is None:
        return None
    from gateway.shared_usage import SharedUsage

    return SharedUsage(redis, ledger)


def _trace_ratio(environ: Mapping[str, str]) -> float:
    """Return the part of ordinary traces to export; raise ConfigError if OpenTelemetry's variable is no such number."""
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    require(0 <= ratio <= 1, f"OTEL_TRACES_SAMPLER_ARG: must be between 0 and 1, got {text!r}")
    return ratio


def _usage_ledger(path: str) -> UsageLedger:
    try:
        return UsageLedger(path)
    except sqlite3.Error as error:
        raise ConfigError(f"ledger: {path}: {error}") from error


def prepare(argv: Sequence[str], **constants: Any) -> Serving:
    """Load the configuration and return the coroutine function that serves; raise ConfigError."""
    config = load(GatewayConfig, ServiceName.GATEWAY, argv, os.environ, prog="python -m gateway", **constants)
    profiles = load_profiles(config)
    tenants = Tenants.load(config.keys, profiles.tiers)
    configure_logging(config.log_level)

    async def serve(stop: asyncio.Event) -> None:
        await Gateway(config, profiles, tenants).run(stop)

    return serve


main = partial(run, prepare)

"""The gateway's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import ipaddress
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.config import ConfigError, addresses, load, option, require
from fairlead.process import configure_logging, run
from fairlead.rpc.channel import MAX_REQUEST_BYTES
from fairlead.rpc.server import Server
from fairlead.telemetry import Telemetry
from gateway.admission import Admission
from gateway.journal import Journal
from gateway.service import InferenceService, add_inference_to_server
from gateway.streams import Streams
from gateway.tenants import Tenants
from gateway.upstream.cluster import Cluster
from throttler.core.interactions import Interactions
from throttler.core.profiles import Limits, Profiles
from throttler.core.quota import Whole
from throttler.core.registry import THROTTLES

log = logging.getLogger(__name__)
MIN_SECRET = 16
EXPIRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """See fairlead.config for where values come from."""

    listen: str = option("127.0.0.1:7000", "address to listen on, host:port; port 0 picks a free one")
    scheduler: str = option("127.0.0.1:7050", "address of the global scheduler, or of several: host:port,host:port")
    secret: str = option("", "the cluster secret, at least 16 characters")
    keys: str = option("", "YAML file of API keys; default: one tenant, no keys")
    insecure: bool = option(False, "allow to listen beyond this machine without API keys")
    throttle: str = option("oit", "who is refused under overload", choices=tuple(THROTTLES))
    user_per_minute: int = option(60, "calls per client and minute, enforced as the throttle says")
    app_per_minute: int = option(600, "calls per app and minute, enforced as the throttle says")
    max_streams_per_client: int = option(256, "most open calls of one client")
    max_streams: int = option(4096, "most open calls in all")
    drain_seconds: float = option(20.0, "how long open calls may take to finish after SIGTERM")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        addresses(self.scheduler, "scheduler")
        for name in ("user_per_minute", "app_per_minute", "max_streams_per_client", "max_streams", "drain_seconds"):
            require(getattr(self, name) > 0, f"{name}: must be above 0, got {getattr(self, name)}")
        require(
            self.insecure or self.keys != "" or self.is_loopback,
            f"listen: {self.listen} is reachable from other machines and no keys are given: anyone could use the "
            "models; give --keys, or accept it with --insecure true",
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listener."""
        host = self.listen.rpartition(":")[0].strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


class Gateway:
    """One process's objects and their order of start and end."""

    def __init__(self, config: GatewayConfig, tenants: Tenants, telemetry: Telemetry) -> None:
        self._config = config
        self._telemetry = telemetry
        self._changed = asyncio.Event()
        self._cluster = Cluster(addresses(config.scheduler, "scheduler"), config.secret, self._changed.set)
        limits = Limits(user_per_minute=config.user_per_minute, app_per_minute=config.app_per_minute)
        profiles = Profiles(limits=limits)
        self._journal = Journal(telemetry)
        self._interactions = Interactions(config.secret, profiles)
        admission = Admission(
            cluster=self._cluster,
            tenants=tenants,
            throttle=THROTTLES[config.throttle](profiles, Whole()),
            interactions=self._interactions,
            streams=Streams(per_client=config.max_streams_per_client, total=config.max_streams),
            closed=self._journal.closed,
        )
        self._server = Server(config.listen, max_request_bytes=MAX_REQUEST_BYTES)
        service = InferenceService(self._cluster, admission, self._journal)
        self._server.add(add_inference_to_server, service, "fairlead.v1.Inference")

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let open calls finish."""
        await self._server.start()
        log.info("listening", extra={"service": "gateway", "port": self._server.port})
        if not self._config.is_loopback:
            problem = "API keys cross it in clear" if self._config.keys else "anyone may use the models"
            log.warning("the listener is public and has no TLS: %s", problem, extra={"listen": self._config.listen})
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(task)
                for task in (self._cluster.run(), self._report_readiness(), self._expire_interactions())
            ]
            await stop.wait()
            log.info("draining")
            await self._server.set_ready(False)
            await self._server.stop(self._config.drain_seconds)
            for task in background:
                task.cancel()
        await self._cluster.close()
        await asyncio.to_thread(self._telemetry.shutdown)

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

    async def _expire_interactions(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            for closed in self._interactions.expired(time.time()):
                self._journal.closed(closed)


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    try:
        config = load(GatewayConfig, argv, os.environ, prog="python -m gateway")
        tenants = Tenants.load(config.keys)
    except ConfigError as error:
        raise SystemExit(f"configuration: {error}") from error
    configure_logging(config.log_level)

    async def service(stop: asyncio.Event) -> None:
        await Gateway(config, tenants, Telemetry.from_environment(os.environ)).run(stop)

    return run(service)

"""The global scheduler's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.v1 import scheduler_pb2_grpc
from global_scheduler.admin import AdminService
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet
from global_scheduler.core.policies import POLICIES, RoutePolicyConfig
from global_scheduler.leadership import LeaderLease, Leadership, SoleLeadership
from global_scheduler.metrics import SchedulerMetrics
from global_scheduler.service import SchedulerService
from serving.config import ConfigError, check_listeners, cost_function, load, option, require
from serving.cost import cost_name
from serving.environment import ServiceName
from serving.process import Serving, configure_logging, run
from serving.redis_access import open_redis
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import SCHEDULER

log = logging.getLogger(__name__)
MIN_SECRET = 16
# Every stream here is endless: waiting longer for their ends would only delay the exit.
STOP_SECONDS = 0.2
# Workers report twenty times a second. ADR 12 says why silence and a missing step have bounds of their own.
STALL_TIMEOUT = 5.0
# A leader that died keeps the lead for so long; meanwhile gateways place requests by themselves.
LEASE_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """See serving.config for where values come from."""

    listen: str = option("127.0.0.1:7050", "address to listen on, host:port; port 0 picks a free one")
    secret: str = option("", "the cluster secret, at least 16 characters; required")
    policy: str = option("doubleq", "how workers are chosen", choices=tuple(POLICIES))
    quantum_tokens: int = option(
        4096, "Q^w: service, in cost units, that a client may take from a worker before it must move on"
    )
    cost: str = option("weighted-tokens", "what service costs; as at the workers")
    step_timeout: float = option(30.0, "seconds without a step, with requests, after which a worker counts as absent")
    redis: str = option("", "URL of the Redis that holds the lease of several schedulers; default: this one is alone")
    redis_password: str = option("", "for Redis, if not in its URL")
    redis_ca: str = option("", "file of the authorities that Redis's TLS certificate is checked against")
    max_index_blocks: int = option(1_000_000, "most blocks in the prefix index")
    internal_certificate: str = option("", "PEM file: with key and authority, mutual TLS between services")
    internal_key: str = option("", "PEM file: the internal certificate's key")
    internal_authority: str = option("", "PEM file: the authority of all internal certificates")
    health_listen: str = option("", "address that answers health checks in plain text, for probes; default: none")
    admin_secret: str = option("", "the secret that operators' calls carry; default: the cluster secret")
    metrics: str = option("", "address of the Prometheus endpoint, host:port; default: none")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        check_listeners(self)
        cost_function(self.cost)
        for name in ("quantum_tokens", "step_timeout", "max_index_blocks"):
            require(getattr(self, name) > 0, f"{name}: must be above 0, got {getattr(self, name)}")

    @property
    def mutual_tls(self) -> MutualTls | None:
        """What this service shows the others; raises ConfigError."""
        return load_mutual_tls(self.internal_certificate, self.internal_key, self.internal_authority)

    @property
    def leadership(self) -> Leadership:
        """As configured; raises ConfigError."""
        if not self.redis:
            return SoleLeadership()
        try:
            redis = open_redis(self.redis, self.redis_password, self.redis_ca)
        except ValueError as error:
            raise ConfigError(f"redis: {error}") from error
        return LeaderLease(redis, holder=f"{socket.gethostname()}-{uuid.uuid4().hex}", seconds=LEASE_SECONDS)


def make_service(config: SchedulerConfig, stall_timeout: float = STALL_TIMEOUT) -> SchedulerService:
    """Return the scheduler as configured. A worker that is silent for `stall_timeout` seconds counts as lost."""
    cost = cost_function(config.cost)
    policy = POLICIES[config.policy](RoutePolicyConfig(config.quantum_tokens, cost))
    fleet = Fleet(stall_timeout, config.step_timeout)
    dispatcher = Dispatcher(policy, BlockIndex(config.max_index_blocks), fleet)
    return SchedulerService(dispatcher, config.leadership, cost_name(cost))


def make_server(config: SchedulerConfig, scheduler: SchedulerService) -> Server:
    """The server with its services, not started."""
    mutual_tls = config.mutual_tls
    server = Server(
        config.listen,
        credentials=mutual_tls.server() if mutual_tls else None,
        health_listen=config.health_listen,
    )
    server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, scheduler, "fairlead.v1.Scheduler", config.secret)
    admin = AdminService(scheduler, config.policy)
    admin_secret = config.admin_secret or config.secret
    server.add(scheduler_pb2_grpc.add_AdminServicer_to_server, admin, "fairlead.v1.Admin", admin_secret)
    return server


async def serve(config: SchedulerConfig, scheduler: SchedulerService, stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    metrics = Metrics(SCHEDULER, config.metrics, os.environ, scheduler.instance)
    server = make_server(config, scheduler)
    await metrics.start()
    await server.start()
    running = asyncio.create_task(scheduler.run())
    measuring = [asyncio.create_task(SchedulerMetrics(metrics.meter, scheduler).run())] if metrics.are_read else []
    await server.set_ready(True)
    log.info("listening", extra={"service": "global_scheduler", "port": server.port, "metrics_port": metrics.port})
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()  # without it nobody would notice workers that stall
    for task in measuring:
        task.cancel()
    await server.set_ready(False)
    # First the lease, then the streams: whoever stands by leads before anybody misses us.
    running.cancel()
    await asyncio.wait([running])
    await server.stop(STOP_SECONDS)
    await metrics.shutdown()


def prepare(argv: Sequence[str]) -> Serving:
    """The scheduler as configured; raises ConfigError."""
    config = load(SchedulerConfig, ServiceName.SCHEDULER, argv, os.environ, prog="python -m global_scheduler")
    scheduler = make_service(config)
    configure_logging(config.log_level)
    return lambda stop: serve(config, scheduler, stop)


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    return run(lambda: prepare(argv))

"""The global scheduler's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from fairlead.v1 import scheduler_pb2_grpc
from global_scheduler.admin import AdminService
from global_scheduler.config import SchedulerConfig
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet
from global_scheduler.core.policies import POLICIES, RoutePolicyConfig
from global_scheduler.metrics import SchedulerMetrics
from global_scheduler.service import SchedulerService
from serving.config import cost_function, load
from serving.cost import cost_name
from serving.environment import ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import SCHEDULER

log = logging.getLogger(__name__)
# Every stream here is endless: waiting longer for their ends would only delay the exit.
STOP_SECONDS = 0.2
# Workers report every 1.5 s at least. ADR 12 says why silence and a missing step have bounds of their own.
STALL_TIMEOUT = 5.0


def make_service(config: SchedulerConfig, stall_timeout: float = STALL_TIMEOUT) -> SchedulerService:
    """Return the scheduler as configured. A worker that is silent for `stall_timeout` seconds counts as lost."""
    cost = cost_function(config.cost)
    policy, below = (POLICIES[config.policy](RoutePolicyConfig(config.quantum, cost)) for _ in range(2))
    fleet = Fleet(stall_timeout, config.step_timeout)
    dispatcher = Dispatcher(policy, BlockIndex(), fleet, below)
    return SchedulerService(dispatcher, config.leadership, cost_name(cost))


def make_server(config: SchedulerConfig, scheduler: SchedulerService) -> Server:
    """Return the server with its services; it is not started."""
    mutual_tls = config.mutual_tls
    server = Server(
        config.listen,
        credentials=mutual_tls.server() if mutual_tls else None,
        health_listen=config.health_listen,
    )
    secrets = (config.secret, config.accepted_secret)
    server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, scheduler, "fairlead.v1.Scheduler", *secrets)
    admin = AdminService(scheduler, config.policy)
    operators = (config.admin_secret,) if config.admin_secret else secrets
    server.add(scheduler_pb2_grpc.add_AdminServicer_to_server, admin, "fairlead.v1.Admin", *operators)
    return server


async def serve(config: SchedulerConfig, scheduler: SchedulerService, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then give up the lead and end the streams."""
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
        running.result()  # raises its error: without it stalled workers would stay members
    for task in measuring:
        task.cancel()
    await server.set_ready(False)
    # First the lease, then the streams: a standby takes the lead before gateways and workers lose this scheduler.
    running.cancel()
    await asyncio.wait([running])
    await server.stop(STOP_SECONDS)
    await metrics.shutdown()


def prepare(argv: Sequence[str], **constants: Any) -> Serving:
    """Return what serves the scheduler that `argv` configures; raise ConfigError."""
    config = load(
        SchedulerConfig, ServiceName.SCHEDULER, argv, os.environ, prog="python -m global_scheduler", **constants
    )
    scheduler = make_service(config)
    configure_logging(config.log_level)
    return lambda stop: serve(config, scheduler, stop)


main = partial(run, prepare)

"""The endpoint picker's composition root."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from endpoint_picker import adapter_reports, usage_reports
from endpoint_picker.adapter_reports import AdapterReports
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.endpoint_pool import EndpointPool, EndpointSize
from endpoint_picker.core.picker_queue import PickerQueue
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.endpoint_source import EndpointSource
from endpoint_picker.engine_poll import EnginePoll
from endpoint_picker.held_bodies import HeldBodies
from endpoint_picker.kubernetes.cluster_api import cluster_api
from endpoint_picker.kubernetes.inference_pool import InferencePool
from endpoint_picker.metrics import observe_picker
from endpoint_picker.picker import Picker
from endpoint_picker.service import NAME, ExternalProcessor
from endpoint_picker.token_prompts import PromptReader, TokenPrompts, read_text
from fairlead.v1 import scheduler_pb2_grpc
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.policies import POLICIES, RoutePolicyConfig
from global_scheduler.leadership import STANDBY, Leadership
from serving.config import addresses, cost_function, load
from serving.endpoint_names import EndpointNames
from serving.environment import ServiceName
from serving.envoy import ext_proc_pb2_grpc, ratelimit_pb2_grpc
from serving.logs import configure_logging
from serving.process import Serving, run
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import PICKER

if TYPE_CHECKING:
    from endpoint_picker.shared_counters import SharedCounters

log = logging.getLogger(__name__)
Observer = Callable[[], Coroutine[Any, Any, None]]
# Requests that are being placed are answered in this time; those that are placed need the picker no more.
STOP_SECONDS = 2.0
LEAVING_SECONDS = 1.5  # Envoy asks for the health once a second, in deploy/envoy
# The names of health checks in the endpoint picker protocol.
ALIVE, READY = "liveness", "readiness"


def make_picker(config: PickerConfig, counters: ServiceCounters) -> Picker:
    """Return the picker as configured, without endpoints, which counts its clients' service in `counters`."""
    cost = cost_function(config.cost)
    policy = POLICIES[config.policy](RoutePolicyConfig(config.quantum, cost))
    size = EndpointSize(
        running=config.max_running,
        kv_tokens=config.kv_tokens,
        block_tokens=config.block_tokens,
        token_budget=config.token_budget,
    )
    held = PickerQueue(config.client_requests, counters)
    pool = EndpointPool(policy, cost, BlockIndex(), size, held)
    return Picker(pool, config.output_rate)


def endpoint_source(config: PickerConfig) -> EndpointSource:
    """Return where the endpoints come from, as configured; raises ConfigError."""
    if config.inference_pool is None:
        return EndpointNames(addresses(config.endpoints, "endpoints"))
    url, namespace, name = config.inference_pool
    return InferencePool(cluster_api(url, os.environ), namespace, name)


def prompt_reader(config: PickerConfig, picker: Picker) -> PromptReader:
    """Return how prompts are read: as engines tokenize them, where their events tell which tokens they cache."""
    if not config.kv_events:
        return read_text
    return TokenPrompts(lambda: picker.pool.endpoints).read


def cache_observers(config: PickerConfig, picker: Picker) -> list[Observer]:
    """Return what follows the events of KV caches, if anything does."""
    if not config.kv_events:
        return []
    from endpoint_picker.followed_caches import FollowedCaches

    return [FollowedCaches(picker, *config.kv_event_ports, config.block_tokens).run]


@asynccontextmanager
async def serving(
    config: PickerConfig,
    picker: Picker,
    source: EndpointSource,
    leadership: Leadership,
    observers: Sequence[Observer] = (),
    leaving: float = 0.0,
    adapters: AdapterReports | None = None,
    bodies: HeldBodies | None = None,
) -> AsyncIterator[Server]:
    """Serve within the context; at its end the picker is not ready for `leaving` seconds before it is gone.

    `observers` run meanwhile, `adapters` may attach, and `bodies` is the budget of what is held of requests. A mistake
    in what runs in the background cancels the context and is raised from it, in an ExceptionGroup.
    """
    tls = config.mutual_tls
    server = Server(config.listen, credentials=tls.server() if tls else None, health_listen=config.health_listen)
    processor = ExternalProcessor(picker, config.weights, prompt_reader(config, picker), bodies or HeldBodies())
    server.add(ext_proc_pb2_grpc.add_ExternalProcessorServicer_to_server, processor, NAME)
    usage = usage_reports.UsageReports(processor.placed)
    server.add(ratelimit_pb2_grpc.add_RateLimitServiceServicer_to_server, usage, usage_reports.NAME)
    if adapters is not None:
        secrets = config.secret, config.accepted_secret
        server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, adapters, adapter_reports.NAME, *secrets)
    changed = asyncio.Event()

    async def tell(endpoints: list[str]) -> None:
        log.info("endpoints", extra={"endpoints": endpoints})
        picker.set_endpoints(endpoints)
        changed.set()

    async def keep_ready() -> None:
        while True:
            changed.clear()
            await _set_health(server, source.is_known, leadership.epoch != STANDBY)
            await changed.wait()

    await server.start()
    await server.set_health(ALIVE, True)
    await tell(source.endpoints)
    work = [source.follow(tell), leadership.run(changed.set), keep_ready(), *(observe() for observe in observers)]
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(each) for each in work]
        try:
            yield server
        finally:
            # The lease is given up first: a picker that stands by leads before this one is gone.
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            await _set_health(server, False, False)
            await asyncio.sleep(leaving)
            processor.leave()
            await server.stop(STOP_SECONDS)


def shared_counters(config: PickerConfig, counters: ServiceCounters) -> "SharedCounters | None":
    """Return what keeps `counters` in common with the other pickers of the pool, if there is a Redis."""
    if not config.redis:
        return None
    from endpoint_picker.shared_counters import SharedCounters
    from serving.redis_access import open_redis

    redis = open_redis(config.redis)
    return SharedCounters(redis, config.group, counters)


async def serve(config: PickerConfig, source: EndpointSource, stop: asyncio.Event) -> None:
    """Serve until `stop`; raises ConfigError."""
    counters = ServiceCounters()
    picker = make_picker(config, counters)
    metrics = Metrics(PICKER, config.metrics, os.environ)
    leadership = config.leadership
    sharing = shared_counters(config, counters)
    poll = EnginePoll(picker)
    adapters = AdapterReports(picker) if config.secret else None
    observe_picker(metrics.meter, picker, source, leadership, poll, adapters, sharing)
    await metrics.start()
    observers = [poll.run, *cache_observers(config, picker)]
    async with (
        sharing.kept() if sharing else nullcontext(),
        serving(config, picker, source, leadership, observers, LEAVING_SECONDS, adapters) as server,
    ):
        ports = {"port": server.port, "metrics_port": metrics.port}
        log.info("listening", extra={"service": "endpoint_picker", **ports})
        await stop.wait()
    await metrics.shutdown()


async def _set_health(server: Server, is_known: bool, leads: bool) -> None:
    """Set the picker's health: whether it knows its pool, and whether it leads, which is what a proxy asks for."""
    await server.set_health("", is_known)
    for name in (READY, NAME):
        await server.set_health(name, is_known and leads)


def prepare(argv: Sequence[str], **constants: Any) -> Serving:
    """Return the picker as configured; raises ConfigError."""
    prog = "python -m endpoint_picker"
    config = load(PickerConfig, ServiceName.PICKER, argv, os.environ, prog=prog, **constants)
    source = endpoint_source(config)
    configure_logging(config.log_level)
    return lambda stop: serve(config, source, stop)


main = partial(run, prepare)

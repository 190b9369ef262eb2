"""The rate limit service's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from serving.config import addresses, load
from serving.environment import ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run
from serving.reload import follow
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import THROTTLER
from throttler.assembly import load_profiles, make_throttler, shared_redis
from throttler.config import ThrottlerConfig
from throttler.core.profiles import Profiles
from throttler.metrics import RateLimitMetrics, observe_sharing
from throttler.metrics_overload import MetricsOverload, OverloadRule
from throttler.rate_limit_service import NAME, RateLimitService, add_rate_limits_to_server
from throttler.scheduler_overload import SchedulerOverload, always
from throttler.store import report_sharing

log = logging.getLogger(__name__)
MAX_REQUEST_BYTES = 256 * 1024  # of descriptors; Envoy accepts 60 KiB of headers
STOP_SECONDS = 1.0  # for the calls in progress; a decision takes milliseconds


class RateLimiter:
    """The objects of one process, and the order in which they start and stop."""

    def __init__(self, config: ThrottlerConfig, profiles: Profiles) -> None:
        self._config = config
        self._metrics = Metrics(THROTTLER, config.metrics, os.environ)
        metrics = RateLimitMetrics(self._metrics.meter)
        self._throttler, self._store = make_throttler(config, profiles, metrics.closed, shared_redis(config))
        observe_sharing(self._metrics.meter, self._store)
        overloaded, self._follow_overload = _overload(config)
        self._service = RateLimitService(
            self._throttler,
            profiles,
            overloaded,
            metrics,
            domains=config.domain_names,
            admits_unknown_domains=config.admits_unknown_domains,
        )
        mutual_tls = config.mutual_tls
        self._server = Server(
            config.listen,
            max_request_bytes=MAX_REQUEST_BYTES,
            credentials=mutual_tls.server() if mutual_tls else None,
            health_listen=config.health_listen,
        )
        self._server.add(add_rate_limits_to_server, self._service, NAME, config.proxy_secret)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await self._metrics.start()
        await self._server.start()
        await self._server.set_ready(True)
        log.info(
            "listening",
            extra={
                "service": "throttler",
                "port": self._server.port,
                "metrics_port": self._metrics.port,
                "health_port": self._server.health_port,
            },
        )
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._throttler.run()),
                tasks.create_task(report_sharing(self._store, self._server)),
            ]
            if self._follow_overload is not None:
                background.append(tasks.create_task(self._follow_overload()))
            if self._config.profiles:
                background.append(tasks.create_task(follow([self._config.profiles], self._reload)))
            await stop.wait()
            log.info("draining")
            await self._server.set_ready(False)
            await self._server.stop(STOP_SECONDS)
            for task in background:
                task.cancel()
        await self._metrics.shutdown()

    def _reload(self) -> None:
        profiles = load_profiles(self._config)
        self._throttler.configure(profiles)
        self._service.configure(profiles)


def _overload(config: ThrottlerConfig) -> tuple[Callable[[str], bool], Callable[[], Coroutine[Any, Any, None]] | None]:
    """Return whether a model's pool is overloaded, and what follows that as long as the process lives."""
    if config.overload_metrics:
        measured = MetricsOverload(OverloadRule.parse(config.overload_metrics))
        return measured, measured.run
    if config.scheduler:
        watched = SchedulerOverload()
        schedulers = addresses(config.scheduler, "scheduler")
        return watched, partial(watched.run, schedulers, config.secret, config.mutual_tls)
    return always, None


def prepare(argv: Sequence[str]) -> Serving:
    """Load the configuration and return the coroutine function that serves; raise ConfigError."""
    config = load(ThrottlerConfig, ServiceName.THROTTLER, argv, os.environ, prog="python -m throttler")
    profiles = load_profiles(config)
    configure_logging(config.log_level)

    async def serve(stop: asyncio.Event) -> None:
        await RateLimiter(config, profiles).run(stop)

    return serve


main = partial(run, prepare)

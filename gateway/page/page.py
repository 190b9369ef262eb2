"""The operators' page of one gateway: what it collects, and the listener that serves it."""

import time

from fairlead.v1 import scheduler_pb2
from gateway.accounting import Accounting
from gateway.core.merge_patch import Document
from gateway.core.service_history import ServiceHistory
from gateway.http.browser_policy import BrowserPolicy
from gateway.http.server import Application, HttpServer
from gateway.page import snapshot
from gateway.page.access import PageAccess
from gateway.page.admin_channels import AdminChannels, NoLeader
from gateway.page.application import PageApplication
from gateway.page.collector import Collector
from gateway.upstream.members import Members
from gateway.usage import UsageSource
from serving.rpc.message_body_limiter import MessageBodyLimiter
from serving.rpc.tls import Certificate
from serving.telemetry.traces import Traces
from throttler.throttler import Throttler


class ClusterView:
    """The cluster as the page shows it, from what this gateway knows and what the leading scheduler is asked for."""

    def __init__(
        self,
        schedulers: AdminChannels,
        members: Members,
        throttler: Throttler,
        throttle: str,
        accounting: Accounting,
        traces: Traces,
    ) -> None:
        self._schedulers = schedulers
        self._members = members
        self._throttler = throttler
        self._throttle = throttle
        self._accounting = accounting
        self._traces = traces
        self._history = ServiceHistory()
        self._answer = scheduler_pb2.ListClientsResponse()

    async def look(self) -> Document:
        """Return the state now. While no scheduler leads, the service of clients is what it was."""
        scheduler: Document = {}
        try:
            self._answer = await self._schedulers.list_clients()
        except NoLeader as error:
            scheduler["away"] = str(error)
        now, answer = time.time(), self._answer
        members = answer.cluster.members
        if "away" not in scheduler:
            processes = frozenset(member.instance for member in members)
            self._history.observe(time.monotonic(), processes, snapshot.samples(answer), snapshot.bound(members))
        overloaded = self._members.overloaded_models()
        queues = snapshot.queues(answer)
        return {
            "time": round(now, 1),
            "scheduler": {**scheduler, "policy": answer.policy, "remembered": answer.remembered},
            "fairness": snapshot.fairness(self._history, members),
            "tenants": snapshot.tenants(self._history, answer),
            "clients": snapshot.clients(self._history, answer),
            "workers": snapshot.workers(members, overloaded, self._traces.newest()),
            "evicted": snapshot.evicted(members),
            "queues": queues,
            "throttle": snapshot.throttle(self._throttler.state(), now, overloaded, self._accounting, self._throttle),
        }

    def past(self) -> Document:
        """Return the last minutes, with Unix times."""
        return snapshot.history_lines(self._history, time.time() - time.monotonic())

    async def rest(self) -> None:
        """Forget what was collected: it would not continue when somebody looks again."""
        self._history = ServiceHistory()
        self._answer = scheduler_pb2.ListClientsResponse()
        await self._schedulers.close()


class Page:
    """The page's listener at `listen`; `controls` is the path of a demo's Unix socket, or empty."""

    def __init__(
        self,
        listen: str,
        view: ClusterView,
        traces: Traces,
        api: Application,
        secret: str,
        browsers: BrowserPolicy,
        *,
        usage: UsageSource,
        bodies: MessageBodyLimiter,
        certificate: Certificate | None,
        request_seconds: float,
        reader_seconds: float,
        controls: str,
    ) -> None:
        self._view = view
        self._collector = Collector(view.look, view.past)
        application = PageApplication(
            PageAccess(secret, is_secure=certificate is not None),
            self._collector,
            traces,
            api,
            bodies,
            controls,
            browsers,
            usage,
        )
        context = certificate.context() if certificate else None
        self._server = HttpServer(
            listen,
            application,
            context,
            seconds=request_seconds,
            reader_seconds=reader_seconds,
            option="page_listen",
        )

    @property
    def port(self) -> int | None:
        """The port on which the page is served; None before `start`."""
        return self._server.port

    async def start(self) -> None:
        """Listen; raise ConfigError if that is not possible."""
        await self._server.start()

    async def run(self) -> None:
        """Collect for the viewers until cancelled."""
        await self._collector.run(self._view.rest)

    async def stop(self, grace: float) -> None:
        """End all viewers and stop; calls that were tried may finish within `grace` seconds."""
        self._collector.close()
        await self._server.stop(grace)

"""The worker's metrics: its load, and its service gap and balances beside the proved bounds."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from opentelemetry.metrics import Meter

from fairlead.v1 import scheduler_pb2
from local_worker.core.events import ClientAccountReport
from serving.cost import MICRO
from serving.telemetry.metrics import OTHER, CappedLabel

STATE_SECONDS = 1.0
MOST_TENANTS = 100


class WorkerMetrics:
    """Gauges that are set once a second from the latest load. Clients are not labels; only their extremes are exported.
    The first MOST_TENANTS tenants are labels of pages, and the others are one.

    The models of one worker share a queue and a KV cache: the label `model` then names all of them.
    """

    def __init__(
        self,
        meter: Meter,
        models: Sequence[scheduler_pb2.ModelInfo],
        balance_range_micro: Callable[[], tuple[int, int] | None],
    ) -> None:
        self._worker = models[0]  # only its fields that are equal for all models are used
        self._label = {"model": ",".join(model.name for model in models)}
        self._range = balance_range_micro
        self._balances: tuple[float, float] | None = None  # lowest and highest balance so far, in cost units
        self._counted: Counter[str] = Counter()
        self._tenants = CappedLabel(MOST_TENANTS)
        self._evicted_before: Counter[tuple[str, str]] = Counter()
        self._held: dict[str, tuple[float, float]] = {}  # tenant's label -> its pages and its part
        gauge = meter.create_gauge
        self._running = gauge("fairlead.worker.running", description="Requests in the batch")
        self._waiting = gauge("fairlead.worker.waiting", description="Requests in the queue")
        self._queue = gauge("fairlead.worker.queue", "s", "Waiting time of the longest waiting request")
        self._kv = gauge("fairlead.worker.kv.used", "1", "Fraction of the KV cache that running requests hold")
        self._slots = gauge("fairlead.worker.slots.used", "1", "Running requests as a fraction of max_running")
        self._step = gauge("fairlead.worker.step", "s", "Moving average of the time of an engine step")
        self._gap = gauge(
            "fairlead.worker.gap", description="Largest observed service gap between backlogged clients, in cost units"
        )
        self._bound = gauge(
            "fairlead.worker.gap.bound", description="The policy's bound on the service gap, in cost units"
        )
        self._bound_seconds = gauge(
            "fairlead.worker.gap.bound.time",
            "s",
            "Time in which the worker, at its measured rate, gives as much service as the bound on the gap",
        )
        self._level_gap = gauge(
            "fairlead.worker.level.gap",
            description="Largest observed service gap between siblings of one level of fairness, in cost units",
        )
        self._rate = gauge(
            "fairlead.worker.service.rate",
            description="Service over weight that all clients receive, in cost units per second of work",
        )
        self._balance = gauge(
            "fairlead.worker.balance", description="Lowest and highest observed balance of a client, in cost units"
        )
        self._limit = gauge(
            "fairlead.worker.balance.limit", description="Proved limits of a client's balance, in cost units"
        )
        self._draining = gauge("fairlead.worker.draining", description="1 while the worker accepts no new requests")
        self._tokens = meter.create_counter(
            "fairlead.worker.tokens", description="Prompt tokens of admitted requests: computed, cached, recomputed"
        )
        self._yields = meter.create_counter(
            "fairlead.worker.yields",
            description="Requests that were preempted, output tokens that were paused, steps without a due preemption",
        )

        self._pages = gauge(
            "fairlead.worker.tenant.pages", description="Pages that a tenant pays for, and its part of all: held, part"
        )
        self._evicted = meter.create_counter(
            "fairlead.worker.evicted.pages", description="Pages that were evicted for requests of the tenant `taker`"
        )

    def delivered(self, services: Sequence[ClientAccountReport]) -> None:
        """Record the balances in the account reports of one turn of the engine loop."""
        for service in services:
            least, greatest = self._balances or (service.balance, service.balance)
            self._balances = min(least, service.balance), max(greatest, service.balance)

    async def run(self, current: Callable[[], scheduler_pb2.Load]) -> None:
        """Set the gauges once a second until cancelled; `current` returns the load of the moment."""
        while True:
            self._set(current())
            await asyncio.sleep(STATE_SECONDS)

    def _set(self, load: scheduler_pb2.Load) -> None:
        self._count(load)
        labels = {**self._label, "policy": self._worker.policy}
        self._running.set(load.running, labels)
        self._waiting.set(load.waiting, labels)
        self._queue.set(load.queue_seconds, labels)
        self._kv.set(load.kv_tokens_used / self._worker.kv_tokens, labels)
        self._slots.set(load.running / self._worker.max_running, labels)
        self._step.set(load.step_seconds, labels)
        self._draining.set(int(load.draining), labels)
        stated = {**labels, "admission": self._worker.admission}
        self._gap.set(load.fairness_gap, stated)
        if load.fairness_bound:
            self._bound.set(load.fairness_bound, stated)
        for level in load.levels:
            self._level_gap.set(level.gap, {**stated, "level": level.level})
        if load.service_rate:
            self._rate.set(load.service_rate, stated)
        if load.service_rate and load.fairness_bound:
            self._bound_seconds.set(load.fairness_bound / load.service_rate, stated)
        self._set_pages(load)
        proved = self._range()
        if self._balances is not None and proved is not None:
            for edge, seen, limit in zip(("least", "greatest"), self._balances, proved, strict=True):
                self._balance.set(seen, {**labels, "edge": edge})
                self._limit.set(limit / MICRO, {**labels, "edge": edge})

    def _set_pages(self, load: scheduler_pb2.Load) -> None:
        held = dict.fromkeys(self._held, (0.0, 0.0))  # who has left keeps a series, which must not keep its value
        for share in load.tenant_pages:
            tenant = self._tenants.value(share.name or OTHER)
            pages, part = held.get(tenant, (0.0, 0.0))
            held[tenant] = pages + share.pages, part + share.part
        for tenant, values in held.items():
            for kind, value in zip(("held", "part"), values, strict=True):
                self._pages.set(value, {**self._label, "tenant": tenant, "kind": kind})
        self._held = held

    def _count(self, load: scheduler_pb2.Load) -> None:
        """Add the increments of the load's totals to the counters."""
        tokens = Counter(
            computed=load.prompt_tokens - load.cached_tokens,
            cached=load.cached_tokens,
            recomputed=load.recomputed_tokens,
        )
        yields = Counter(preempted=load.preemptions, paused=load.paused_decodes, deferred=load.deferred_preemptions)
        for counter, totals in ((self._tokens, tokens), (self._yields, yields)):
            for kind, total in totals.items():
                counter.add(total - self._counted[kind], {**self._label, "kind": kind})
        self._counted = tokens + yields
        evicted = Counter({(each.taker or OTHER, each.owner or OTHER): each.pages for each in load.evicted_pages})
        for (taker, owner), pages in (evicted - self._evicted_before).items():
            self._evicted.add(pages, {**self._label, "taker": taker, "owner": owner})
        self._evicted_before = evicted

"""What a worker measures: its load, and how near its fairness is to what is proved."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from opentelemetry.metrics import Meter

from fairlead.v1 import scheduler_pb2
from local_worker.step_events import ClientAccountReport
from serving.cost import MICRO

STATE_SECONDS = 1.0


class WorkerMetrics:
    """Gauges set once a second from the engine loop's latest word. Clients are no labels; their extremes are.

    A worker of several models has one queue and one KV cache: the label `model` then names all of them.
    """

    def __init__(
        self,
        meter: Meter,
        models: Sequence[scheduler_pb2.ModelInfo],
        balance_range_micro: Callable[[], tuple[int, int] | None],
    ) -> None:
        self._worker = models[0]  # what all have in common
        self._label = {"model": ",".join(model.name for model in models)}
        self._range = balance_range_micro
        self._balances: tuple[float, float] | None = None  # the least and the greatest ever
        self._counted: Counter[str] = Counter()
        gauge = meter.create_gauge
        self._running = gauge("fairlead.worker.running", description="Requests in the batch")
        self._waiting = gauge("fairlead.worker.waiting", description="Requests in the queue")
        self._queue = gauge("fairlead.worker.queue", "s", "How long the oldest waiting request has waited")
        self._kv = gauge("fairlead.worker.kv.used", "1", "Part of the KV cache that running requests hold")
        self._slots = gauge("fairlead.worker.slots.used", "1", "Part of the batch's places that are taken")
        self._step = gauge("fairlead.worker.step", "s", "Moving average of an engine step's time")
        self._gap = gauge("fairlead.worker.gap", description="Largest service gap of backlogged clients seen")
        self._bound = gauge("fairlead.worker.gap.bound", description="The policy's bound on that gap")
        self._rate = gauge(
            "fairlead.worker.service.rate", description="Service over weight given to all clients per second of work"
        )
        self._balance = gauge("fairlead.worker.balance", description="Least and greatest balance of any client seen")
        self._limit = gauge("fairlead.worker.balance.limit", description="Range within which balances are proved to be")
        self._draining = gauge("fairlead.worker.draining", description="1 while the worker takes no new requests")
        self._tokens = meter.create_counter(
            "fairlead.worker.tokens", description="Prompt tokens of admitted requests: computed, cached, recomputed"
        )

    def delivered(self, services: Sequence[ClientAccountReport]) -> None:
        """The engine loop's latest word."""
        balances = [service.balance for service in services]
        if balances:
            least, greatest = self._balances or (balances[0], balances[0])
            self._balances = min(least, *balances), max(greatest, *balances)

    async def run(self, current: Callable[[], scheduler_pb2.Load]) -> None:
        """Until cancelled; `current` is the load as of now, with what has changed since the last step."""
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
        if load.service_rate:
            self._rate.set(load.service_rate, stated)
        proved = self._range()
        if self._balances is not None and proved is not None:
            for edge, seen, limit in zip(("least", "greatest"), self._balances, proved, strict=True):
                self._balance.set(seen, {**labels, "edge": edge})
                self._limit.set(limit / MICRO, {**labels, "edge": edge})

    def _count(self, load: scheduler_pb2.Load) -> None:
        """The load's totals as increments."""
        totals = Counter(
            computed=load.prompt_tokens - load.cached_tokens,
            cached=load.cached_tokens,
            recomputed=load.recomputed_tokens,
        )
        for kind, total in totals.items():
            self._tokens.add(total - self._counted[kind], {**self._label, "kind": kind})
        self._counted = totals

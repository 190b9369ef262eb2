"""Asks every endpoint again and again what it has to do."""

import asyncio
import logging
from collections.abc import Sequence

from endpoint_picker.core.endpoint_pool import EndpointReport
from endpoint_picker.picker import Picker
from serving.engine_metrics import load_of
from serving.metrics_page import read_metrics

log = logging.getLogger(__name__)
METRICS_PATHS = ("/metrics", "/prometheus/metrics")  # the second is TensorRT-LLM's
POLL_SECONDS = 1.0
MOST_AT_ONCE = 32  # calls
STALE_ROUNDS = 3  # without an answer, after which the last one counts no more


class EnginePoll:
    """Asks the endpoints of `picker` at the first of `paths` that has metrics, with `seconds` between two rounds.

    Of an endpoint that does not answer, the picker knows only what it placed there, as of all before they answer first.
    """

    def __init__(self, picker: Picker, paths: Sequence[str] = METRICS_PATHS, seconds: float = POLL_SECONDS) -> None:
        self._picker = picker
        self._paths = paths
        self._seconds = seconds
        self._answered: dict[str, int] = {}  # by endpoint: the rounds since its last answer
        self._failing: set[str] = set()

    @property
    def answering(self) -> int:
        """Return how many endpoints have answered lately."""
        return len(self._answered)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            endpoints = self._picker.pool.endpoints
            self._answered = {each: rounds for each, rounds in self._answered.items() if each in endpoints}
            self._failing.intersection_update(endpoints)
            limit = asyncio.Semaphore(MOST_AT_ONCE)
            async with asyncio.TaskGroup() as calls:
                for endpoint in endpoints:
                    calls.create_task(self._ask(endpoint, limit))
            await asyncio.sleep(self._seconds)

    async def _ask(self, endpoint: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            placed = self._placed(endpoint)
            try:
                report = await self._read(endpoint)
            except (OSError, ValueError) as error:
                self._failed(endpoint, error)
                return
        self._answered[endpoint] = 0
        self._failing.discard(endpoint)
        self._picker.observed(endpoint, report, placed)

    async def _read(self, endpoint: str) -> EndpointReport:
        *others, last = self._paths
        for path in others:
            try:
                return EndpointReport(*load_of(await read_metrics(endpoint, path)))
            except ValueError:  # not there, or other metrics
                continue
        return EndpointReport(*load_of(await read_metrics(endpoint, last)))

    def _placed(self, endpoint: str) -> int:
        pool = self._picker.pool
        return pool.outstanding(endpoint) if endpoint in pool.endpoints else 0

    def _failed(self, endpoint: str, error: Exception) -> None:
        if endpoint not in self._failing:
            log.warning("an endpoint has no metrics", extra={"endpoint": endpoint, "error": repr(error)})
        self._failing.add(endpoint)
        if endpoint in self._answered:
            self._answered[endpoint] += 1
            if self._answered[endpoint] >= STALE_ROUNDS:
                del self._answered[endpoint]
                self._picker.observed(endpoint, EndpointReport(), 0)

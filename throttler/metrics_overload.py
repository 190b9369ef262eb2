"""Overload that is read from a Prometheus metric, of the engines or of any other process."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from serving.endpoint_names import resolve
from serving.engine_metrics import load_of, total
from serving.metrics_page import read_metrics

log = logging.getLogger(__name__)
METRIC = r"([a-zA-Z_:][a-zA-Z0-9_:]*)?"
THRESHOLD = 10.0  # requests that wait
READ_SECONDS = 0.5  # between two readings
FRESH_SECONDS = 3.0  # an answer may take 1 s, and the lookup of a host another one


class MetricsUrl(NamedTuple):
    """The place of metrics: all addresses of `host` have them at `path`."""

    host: str
    port: int
    path: str


class OverloadRule(NamedTuple):
    """Workers are overloaded while the values of `metric`, added over all `urls`, are at least `threshold`.

    Without a `metric` it is the number of requests that wait in engines, by their own names.
    """

    urls: Sequence[MetricsUrl]
    metric: str = ""
    threshold: float = THRESHOLD

    @classmethod
    def parse(cls, text: str) -> "OverloadRule":
        """Return the rule in `http://host:port/path,...[#metric][>=number]`; raise ValueError for what is none."""
        places, _, condition = text.partition("#")
        metric, _, number = condition.partition(">=")
        if not re.fullmatch(METRIC, metric):
            raise ValueError(f"expected a metric's name after #, got {metric!r}")
        threshold = float(number) if number else THRESHOLD
        if not 0 < threshold < math.inf:
            raise ValueError(f"expected a number above 0 after >=, got {number!r}")
        return cls([_metrics_url(part.strip(), text) for part in places.split(",")], metric, threshold)


def _metrics_url(part: str, text: str) -> MetricsUrl:
    url = urlsplit(part)
    if url.scheme != "http" or not url.hostname or not url.path:
        raise ValueError(f"expected http://host:port/path[,http://...], got {text!r}")
    return MetricsUrl(url.hostname, url.port or 80, url.path + (f"?{url.query}" if url.query else ""))


class MetricsOverload:
    """All pools are overloaded while `rule` says so.

    What does not answer adds nothing; without any answer in the last FRESH_SECONDS no pool counts as overloaded.
    `clock` returns seconds of a monotonic clock.
    """

    def __init__(self, rule: OverloadRule, clock: Callable[[], float] = time.monotonic) -> None:
        self._urls, self._metric, self._threshold = rule
        self._clock = clock
        self._is_overloaded = False
        self._told = float("-inf")
        self._failing: set[str] = set()  # the sources that failed in the last reading

    def __call__(self, model: str) -> bool:
        """Return whether the pools are overloaded, whatever the model is."""
        return self._is_overloaded and self._clock() - self._told <= FRESH_SECONDS

    async def run(self) -> None:
        """Read the metrics again and again until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(READ_SECONDS)

    async def read(self) -> None:
        """Read the metrics once, of all URLs at once."""
        failing: set[str] = set()
        found = await asyncio.gather(*(self._read_url(url, failing) for url in self._urls))
        self._failing = failing
        values = [value for of_url in found for value in of_url]
        if not values:
            return
        is_overloaded = sum(values) >= self._threshold
        if is_overloaded != self(""):
            log.info("overload changed", extra={"value": sum(values), "threshold": self._threshold})
        self._is_overloaded, self._told = is_overloaded, self._clock()

    async def _read_url(self, url: MetricsUrl, failing: set[str]) -> list[float]:
        try:
            hosts = await resolve(url.host)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
            self._failed(url.host, error, failing)
            return []
        addresses = [f"[{host}]:{url.port}" if ":" in host else f"{host}:{url.port}" for host in hosts]
        values = await asyncio.gather(*(self._read_address(address, url.path, failing) for address in addresses))
        return [value for value in values if value is not None]

    async def _read_address(self, address: str, path: str, failing: set[str]) -> float | None:
        try:
            text = await read_metrics(address, path)
            return total(text, self._metric) if self._metric else load_of(text).waiting
        except (OSError, ValueError) as error:
            self._failed(address, error, failing)
            return None

    def _failed(self, source: str, error: Exception, failing: set[str]) -> None:
        """Record in `failing` that `source` fails, and tell it once."""
        if source not in self._failing and source not in failing:
            log.warning("a source of overload has no metric", extra={"source": source, "error": repr(error)})
        failing.add(source)

"""The service that clients ask of a pool over time, and the part of it that is their fair share.

Time is cut into windows. In each window, water-filling divides the pool's capacity over the clients' demand: the demand
that arrives in the window, and the demand that their fair shares did not cover in earlier windows. All clients have
equal weight. The demand is that of the trace at the trace's times, so it is the same under every configuration.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from serving.cost import MICRO
from simulation.spec import WorkerSpec
from simulation.trace_rows import TraceRow
from simulation.what_if.water_filling import WaterFilling

LONGEST_WINDOW = 60.0  # seconds, as VTC measures service (section 5.1: T = 30 on either side)
FEWEST_WINDOWS = 20  # shorter traces have shorter windows
SHORTEST_WINDOW = 0.5
NOTHING_LEFT = 1e-6  # cost units


@dataclass(frozen=True, slots=True)
class ServiceDemand:
    """The demand of one call at `second`, in cost units: its whole prompt, cached or not, and its output."""

    client: str
    second: float
    prompt: float
    output: float

    @property
    def service(self) -> float:
        """The demand for prompt and output together, in cost units."""
        return self.prompt + self.output

    def received(self, first: float, ended: float, second: float) -> float:
        """Return the part received by `second` if the first token came at `first` and the call ended at `ended`.

        The prompt counts at the first token, and the output is spread evenly from there (VTC section 5.1).
        """
        if second < first:
            return 0.0
        return self.prompt + self.output * (min((second - first) / (ended - first), 1.0) if ended > first else 1.0)


def asks_of(rows: Sequence[TraceRow], worker: WorkerSpec) -> dict[int, ServiceDemand]:
    """Return the demand of each row by call number; requests that exceed the worker's limits are left out."""
    cost = worker.make_cost()
    return {
        number: ServiceDemand(
            client=row.account,
            second=row.arrival,
            prompt=cost.extend(row.input_tokens, 0) / MICRO,
            output=cost.decode(row.output_tokens, row.input_tokens, 0) / MICRO,
        )
        for number, row in enumerate(rows, start=1)
        if row.input_tokens <= worker.max_prompt_tokens and row.input_tokens + row.output_tokens <= worker.kv_tokens
    }


def window_of(asks: Iterable[ServiceDemand]) -> float:
    """Return the length of a window for such a trace, in seconds."""
    span = max((ask.second for ask in asks), default=0.0)
    return min(max(span / FEWEST_WINDOWS, SHORTEST_WINDOW), LONGEST_WINDOW)


class FairShares:
    """Fair shares over time: `asks` by call number, `capacity` in cost units per second, `window` in seconds."""

    def __init__(self, asks: Mapping[int, ServiceDemand], capacity: float, window: float) -> None:
        self.asks = asks
        self.capacity = capacity
        self._window = window
        self._count = 1 + max((int(ask.second / window) for ask in asks.values()), default=0)  # until the last call
        self._windows = list(_fill(list(asks.values()), capacity * window, window))

    @property
    def clients(self) -> list[str]:
        """The clients with any demand, sorted."""
        return sorted({ask.client for ask in self.asks.values()})

    @property
    def end(self) -> float:
        """The end of the window in which the last call arrives, in seconds."""
        return self._count * self._window

    def is_within(self, number: int) -> bool:
        """Return whether the call arrives while its client asks for at most its fair share.

        The result is False for a call without demand, which no worker accepts.
        """
        ask = self.asks.get(number)
        return ask is not None and self._windows[int(ask.second / self._window)].is_met(ask.client)

    def entitlements(self, points: int) -> Iterator[tuple[float, dict[str, float]]]:
        """Yield seconds, and the cost units that the fair shares have granted each client up to then.

        The seconds are the ends of `points` windows that are evenly spread up to the last call, or of all windows if
        there are fewer.
        """
        given: dict[str, float] = {}
        for number, window in enumerate(self._windows[: self._count], start=1):
            for client in window.clients:
                given[client] = given.get(client, 0.0) + window.granted(client)
            if number * points // self._count > (number - 1) * points // self._count:
                yield number * self._window, dict(given)

    def shares(self, client: str, start: float) -> list[tuple[float, float]]:
        """Return pairs of a time, in seconds after `start`, and the share of the pool open to `client` from then on.

        The last share is the whole pool.
        """
        first = int(start / self._window)
        whole = self.capacity * self._window
        shares = [
            (max(number * self._window - start, 0.0), window.open_to(client) / whole)
            for number, window in enumerate(self._windows[first:], start=first)
        ]
        return [*shares, (len(self._windows) * self._window - start, 1.0)]


def _fill(asks: Sequence[ServiceDemand], capacity: float, window: float) -> Iterator[WaterFilling]:
    """Yield the allocation of each window until all demand is met."""
    coming: dict[int, list[ServiceDemand]] = {}
    for ask in asks:
        coming.setdefault(int(ask.second / window), []).append(ask)
    number, left = 0, dict[str, float]()
    while coming or left:
        for ask in coming.pop(number, ()):
            left[ask.client] = left.get(ask.client, 0.0) + ask.service
        filling = WaterFilling(dict(left), capacity)
        left = {c: rest for c, asked in left.items() if (rest := asked - filling.granted(c)) > NOTHING_LEFT}
        number += 1
        yield filling

"""A counter that is cheap to count with, and a cap on the values of its labels."""

from collections.abc import Sequence

from opentelemetry.metrics import CallbackOptions, Meter, Observation


class Counter:
    """A counter with the given labels, whose totals the SDK reads at each collection.

    The SDK's own counter copies, cleans and sorts the attributes of each measurement, which takes tens of times as long
    as an addition to a total.
    """

    def __init__(self, meter: Meter, name: str, labels: Sequence[str], description: str) -> None:
        self._labels = tuple(labels)
        self._totals: dict[tuple[str, ...], float] = {}
        meter.create_observable_counter(name, [self._observe], description=description)

    def add(self, amount: float, *values: str) -> None:
        """Add `amount`, at least 0, to the total of these values of the labels, in the labels' order."""
        self._totals[values] = self._totals.get(values, 0) + amount

    def _observe(self, _: CallbackOptions) -> list[Observation]:
        totals = list(self._totals.items())  # a copy: the exporter's thread may run this
        return [Observation(total, dict(zip(self._labels, values, strict=True))) for values, total in totals]


OTHER = "other"


class CappedLabel:
    """A label that keeps its first `most` distinct values and replaces later ones by `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()  # never iterated: its order is not deterministic

    def value(self, given: str) -> str:
        """Return the label's value for `given`."""
        if given not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(given)
        return given

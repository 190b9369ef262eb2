"""The order of numbered batches of events from a publisher that may lose some, repeat some and start anew."""

from enum import Enum, auto


class BatchOrder(Enum):
    """The kind of a batch of events, given the batches before it."""

    NEXT = auto()
    EARLY = auto()  # batches before it are missing
    REPEATED = auto()
    RESTARTED = auto()  # the publisher counts from the beginning again, and has forgotten what it published


class EventSequence:
    """The number of the next batch. A publisher counts from 0, and stamps each batch with its time."""

    def __init__(self) -> None:
        self.next = 0
        self._time = float("-inf")  # of the latest batch, on the publisher's clock

    def kind(self, number: int, time: float) -> BatchOrder:
        """Return what the batch of this number and publisher's time is."""
        if number == self.next:
            return BatchOrder.NEXT
        if number > self.next:
            return BatchOrder.EARLY
        return BatchOrder.REPEATED if time <= self._time else BatchOrder.RESTARTED

    def passed(self, number: int, time: float) -> None:
        """Record that the batch of this number and publisher's time is the latest one."""
        self.next, self._time = number + 1, time

    def reset(self) -> None:
        """Expect a publisher that counts from the beginning."""
        self.next, self._time = 0, float("-inf")

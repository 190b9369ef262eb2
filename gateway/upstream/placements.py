"""Who placed requests: the scheduler, or this gateway for want of one, and why."""

import enum
from collections.abc import Iterator


class Decision(enum.StrEnum):
    """How one attempt to place a request was decided; names a metric's label."""

    SCHEDULER = "scheduler"  # it chose
    NO_SCHEDULER = "no_scheduler"  # none can be reached, or it does not answer: the gateway chose
    NO_LEADER = "no_leader"  # those that can be reached stand by: the gateway chose
    SETTLING = "settling"  # the leader has none, and workers known here have still to attach to it: the gateway chose
    NO_WORKER = "no_worker"  # none may take the request: it was refused
    MALFORMED = "malformed"  # the scheduler cannot read the request: it was refused


class Chooser(enum.StrEnum):
    """Who decides in such a case."""

    SCHEDULER = "scheduler"
    GATEWAY = "gateway"
    NOBODY = "nobody"


CHOOSERS = {
    Decision.SCHEDULER: Chooser.SCHEDULER,
    Decision.NO_SCHEDULER: Chooser.GATEWAY,
    Decision.NO_LEADER: Chooser.GATEWAY,
    Decision.SETTLING: Chooser.GATEWAY,
    Decision.NO_WORKER: Chooser.NOBODY,
    Decision.MALFORMED: Chooser.NOBODY,
}


class PlacementCounts:
    """Attempts to place requests since the gateway's start, by how they were decided."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Decision, 0)

    def __iter__(self) -> Iterator[tuple[Chooser, Decision, int]]:
        return ((CHOOSERS[decision], decision, count) for decision, count in self._counts.items())

    def count(self, decision: Decision) -> None:
        """One more."""
        self._counts[decision] += 1

"""The result of an attempt to place a request: the process that chose the worker, if one did, and the reason."""

import enum


class PlacementReason(enum.StrEnum):
    """The reason for the result of one attempt to place a request; its values are those of a metric's label."""

    SCHEDULER = "scheduler"  # the scheduler chose
    NO_SCHEDULER = "no_scheduler"  # no scheduler is reachable or answers: the gateway chose
    NO_LEADER = "no_leader"  # all reachable schedulers are standbys: the gateway chose
    SETTLING = "settling"  # the leader has no worker, but known workers may still attach to it: the gateway chose
    NO_WORKER = "no_worker"  # no worker can take the request: it was refused
    MALFORMED = "malformed"  # the scheduler cannot parse the request: it was refused


class Chooser(enum.StrEnum):
    """The process that chose the worker for a placement."""

    SCHEDULER = "scheduler"
    GATEWAY = "gateway"
    NOBODY = "nobody"


CHOOSERS = {
    PlacementReason.SCHEDULER: Chooser.SCHEDULER,
    PlacementReason.NO_SCHEDULER: Chooser.GATEWAY,
    PlacementReason.NO_LEADER: Chooser.GATEWAY,
    PlacementReason.SETTLING: Chooser.GATEWAY,
    PlacementReason.NO_WORKER: Chooser.NOBODY,
    PlacementReason.MALFORMED: Chooser.NOBODY,
}

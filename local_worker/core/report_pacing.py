"""When a worker's next reports are due: a message costs a scheduler about 100 us, whatever it carries."""

import math

# Between two reports of the load.
REPORT_SECONDS = 1.5
# Overload asks for a queue whose first request has waited for a second: a new queue is reported again after that time.
NEW_QUEUE_SECONDS = 1.0
# Scheduling asks whether requests wait: a change of that is reported this long after the last report, or at once.
QUEUE_CHANGE_SECONDS = 0.25
# Between two reports of which the second is urgent.
GATHER_SECONDS = 0.05
# Blocks that are cached or evicted while no request begins or ends: a scheduler expects a prompt's blocks anyway.
BLOCKS_SECONDS = 0.5


class ReportPacing:
    """Times of the next reports on one stream, of the load and of progress; `now` is in seconds and never decreases.

    Progress is what requests have begun and ended and what has changed in the prefix cache since the last such report.
    """

    def __init__(self) -> None:
        self.load_due = -math.inf
        self.progress_due = math.inf  # infinite: there is no progress
        self._load_at = self._progress_at = -math.inf  # times of the last reports
        self._told_of_queue = False  # whether requests waited at the last report of the load

    @property
    def due(self) -> float:
        """The time of the next report."""
        return min(self.load_due, self.progress_due)

    def queue_is(self, waiting: int) -> None:
        """Note how many requests wait now."""
        if bool(waiting) != self._told_of_queue:
            self.load_due = min(self.load_due, self._load_at + QUEUE_CHANGE_SECONDS)

    def load_is_urgent(self) -> None:
        """Note that the load must be reported now, or that the last report left a part of it out."""
        self.load_due = min(self.load_due, self._load_at + GATHER_SECONDS)

    def requests_changed(self) -> None:
        """Note that a request has begun or ended, or that its prompt is computed."""
        self.progress_due = min(self.progress_due, self._progress_at + GATHER_SECONDS)

    def blocks_changed(self) -> None:
        """Note that blocks were cached or evicted."""
        self.progress_due = min(self.progress_due, self._progress_at + BLOCKS_SECONDS)

    def load_told(self, waiting: int, now: float) -> None:
        """Note that the load was reported, with so many waiting requests."""
        is_new_queue = bool(waiting) and not self._told_of_queue
        self._load_at, self._told_of_queue = now, bool(waiting)
        self.load_due = now + (NEW_QUEUE_SECONDS if is_new_queue else REPORT_SECONDS)

    def progress_told(self, now: float) -> None:
        """Note that all progress was reported."""
        self._progress_at, self.progress_due = now, math.inf

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if the load would not be reported in time."""
        assert self.load_due <= self._load_at + REPORT_SECONDS, f"the load of {self._load_at} is due at {self.load_due}"

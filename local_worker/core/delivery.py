"""When events leave a worker: those of requests to their owners, with tokens gathered, and reports to schedulers. A
message costs who receives it about 100 us, whatever it carries.

A request's first token leaves at once, and what is held of a request leaves with its end. All other tokens leave in
ticks, those of all requests together. A step is a tick if it ends TICK_SECONDS or more after the last one, or if a
request then has as many tokens as its owner wants in one message. So tokens leave with a step, and steps that are
slower than ticks are not delayed. If a step takes longer, what is held leaves LATEST_SECONDS after the last tick.
Delivery is apart from the WorkerMachine, because a tick must not wait for a step that blocks the engine's thread.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from local_worker.core.events import RequestEvents, RequestTokens, joined
from local_worker.core.request import Request

TICK_SECONDS = 0.04
# Two ticks: of steps that take the same time, one always ends between one and two ticks after the last. After one tick
# alone the timer would often come right before the step that completes a message.
LATEST_SECONDS = 2 * TICK_SECONDS


@dataclass(slots=True)
class HeldOutput:
    """The output of one request that has not left; `wanted` tokens are enough for its next message."""

    tokens_per_message: int
    wanted: int = 1  # the first token leaves alone
    tokens: int = 0
    events: list[RequestTokens] = field(default_factory=list)

    def take(self) -> RequestTokens:
        """Remove and return everything that is held, at least one event."""
        tokens = joined(self.events)
        self.events, self.tokens, self.wanted = [], 0, self.tokens_per_message
        return tokens


class Delivery:
    """The open requests of all owners, and their output until it leaves. `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._owned: dict[Hashable, dict[tuple[str, int], Request]] = {}  # owner -> by request id and attempt
        self._open: dict[Request, HeldOutput] = {}
        self._waiting: dict[Request, HeldOutput] = {}  # the requests that hold output for the next tick
        self._urgent: list[RequestTokens] = []  # leave before that
        self._ticked_at = -math.inf
        self.due: float | None = None  # time of the next tick, unless a step is one before; None: nothing is held

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    def open(self, request: Request) -> bool:
        """Expect events of `request`. Return False for a repeated message: its owner has an open request of equal id
        and attempt."""
        owned = self._owned.setdefault(request.owner, {})
        if (request.id, request.attempt) in owned:
            return False
        owned[request.id, request.attempt] = request
        self._open[request] = HeldOutput(request.tokens_per_message)
        return True

    def find(self, owner: Hashable, request_id: str, attempt: int) -> Request | None:
        """Return an open request of `owner`; None if it is unknown or has ended."""
        return self._owned.get(owner, {}).get((request_id, attempt))

    def owned_by(self, owner: Hashable) -> list[Request]:
        """Return the open requests of `owner`, in order of their arrival."""
        return list(self._owned.get(owner, {}).values())

    def close(self, request: Request) -> None:
        """Release what is held of an open request, and forget it."""
        owned = self._owned[request.owner]
        del owned[request.id, request.attempt]
        if not owned:
            del self._owned[request.owner]
        del self._open[request]
        held = self._waiting.pop(request, None)
        if held is not None:
            self._urgent.append(held.take())
            if not self._waiting:
                self.due = None

    def deliver(self, events: RequestEvents, now: float) -> RequestEvents:
        """Return `events` of a turn of the worker, with the tokens that leave now in place of those of the turn."""
        for tokens in events.tokens:
            held = self._open[tokens.request]
            held.events.append(tokens)
            held.tokens += len(tokens.tokens)
            if held.wanted == 1:
                self._urgent.append(held.take())
                continue
            self._waiting[tokens.request] = held
            if held.tokens >= held.wanted:
                self.due = now
            elif self.due is None:
                self.due = max(now, self._ticked_at + LATEST_SECONDS)
        for end in events.ended:
            self.close(end.request)
        return RequestEvents(events.accepted, events.started, events.computed, self.take(now), events.ended)

    def take(self, now: float) -> list[RequestTokens]:
        """Remove and return the output that leaves now, in the order in which each request generated it."""
        leaving, self._urgent = self._urgent, []
        if self.due is not None and now >= min(self.due, self._ticked_at + TICK_SECONDS):
            leaving += [held.take() for held in self._waiting.values()]
            self._waiting, self.due, self._ticked_at = {}, None, now
        return leaving

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if output is held for a request that has ended, or without a tick."""
        owned = [request for requests in self._owned.values() for request in requests.values()]
        assert {*owned} == {*self._open}, f"{len(owned)} requests by owner, {len(self._open)} in all"
        assert all(self._owned.values()), "an owner without requests is kept"
        for request, held in self._waiting.items():
            assert self._open.get(request) is held, f"output is held of {request.id}, which has ended"
            assert held.tokens == sum(len(each.tokens) for each in held.events), f"{request.id}: {held}"
        assert (self.due is None) == (not self._waiting), f"{len(self._waiting)} requests wait for a tick at {self.due}"


def by_owner(events: RequestEvents) -> dict[Hashable, RequestEvents]:
    """Divide `events` among the owners of the requests."""
    divided: dict[Hashable, RequestEvents] = {}
    for started in events.started:
        divided.setdefault(started.request.owner, RequestEvents()).started.append(started)
    for tokens in events.tokens:
        divided.setdefault(tokens.request.owner, RequestEvents()).tokens.append(tokens)
    for ended in events.ended:
        divided.setdefault(ended.request.owner, RequestEvents()).ended.append(ended)
    return divided


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

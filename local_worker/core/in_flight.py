"""Steps in flight: planned, but neither committed nor failed."""

from collections import deque
from collections.abc import Container, Iterable

from local_worker.core.plan import Plan
from local_worker.core.request import Request


class InFlight:
    """The queue of plans in flight. It owns `Request.in_flight`, and sets `computed` to its value after the plan."""

    def __init__(self) -> None:
        self._plans: deque[Plan] = deque()  # oldest first
        self._sources: dict[Request, int] = {}  # index of each request among the samples of the newest plan

    def __bool__(self) -> bool:
        return bool(self._plans)

    def __contains__(self, request: Request) -> bool:
        return any(other is request for plan in self._plans for other, _ in plan.parts)

    def has_any(self, requests: Container[Request]) -> bool:
        """Return whether one of `requests` takes part in a step in flight."""
        return any(request in requests for plan in self._plans for request, _ in plan.parts)

    def launched(self, plan: Plan) -> None:
        """Record `plan`, which the engine computes after all earlier plans."""
        self._plans.append(plan)
        sources = self._sources = {}
        for request, piece in plan.parts:
            request.computed = piece.stop
            if piece.samples:
                sources[request] = len(sources)
                request.in_flight += 1

    def landed(self) -> None:
        """Remove the oldest plan: its step was computed or has failed."""
        for request, piece in self._plans.popleft().parts:
            request.in_flight -= piece.samples
        if not self._plans:
            self._sources = {}  # an idle worker holds no request

    def source(self, request: Request) -> int | None:
        """Return the index of `request`'s last token among the samples of the newest plan; None when the token is
        known."""
        return self._sources[request] if request.in_flight else None

    def check_invariants(self, running: Iterable[Request]) -> None:
        """Raise AssertionError unless the plans sample exactly the tokens that `running` has in flight."""
        for request in running:
            samples = [piece.samples for plan in self._plans for other, piece in plan.parts if other is request]
            assert request.in_flight == sum(samples), f"{request.id}: {request.in_flight} in flight, {samples} launched"
            assert request.computed <= request.due, f"{request.id}: {request.computed} computed, {request.due} due"

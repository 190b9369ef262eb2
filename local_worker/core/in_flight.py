"""Steps under way: planned, and neither committed nor failed."""

from collections import deque
from collections.abc import Iterable

from local_worker.core.plan import Plan
from local_worker.core.request import Request


class InFlight:
    """Owns `Request.in_flight`, and moves `computed` on to where a launched plan will have brought a request."""

    def __init__(self) -> None:
        self._plans: deque[Plan] = deque()  # the oldest first
        self._sources: dict[Request, int] = {}  # places among the newest plan's samples

    def __bool__(self) -> bool:
        return bool(self._plans)

    def launched(self, plan: Plan) -> None:
        """`plan` will be computed after those before it."""
        self._plans.append(plan)
        sampled = [request for request, piece in plan.parts if piece.samples]
        self._sources = {request: place for place, request in enumerate(sampled)}
        for request in sampled:
            request.in_flight += 1
        for request, piece in plan.parts:
            request.computed = piece.stop

    def landed(self) -> None:
        """The oldest plan is computed, or has failed."""
        for request, piece in self._plans.popleft().parts:
            request.in_flight -= piece.samples

    def source(self, request: Request) -> int | None:
        """Where among the newest plan's samples `request`'s last token is; None when the token is known."""
        return self._sources[request] if request.in_flight else None

    def check_invariants(self, running: Iterable[Request]) -> None:
        """Raise AssertionError unless what `running` has in flight is what these plans sample."""
        for request in running:
            samples = [piece.samples for plan in self._plans for other, piece in plan.parts if other is request]
            assert request.in_flight == sum(samples), f"{request.id}: {request.in_flight} in flight, {samples} launched"
            assert request.computed <= request.due, f"{request.id}: {request.computed} computed, {request.due} due"

"""When requests have to have ended."""

import heapq

from local_worker.core.request import Request

SPARE = 16  # entries of requests that have left, kept without need


class Deadlines:
    """A heap of requests by deadline. Requests that leave stay in it until they are the greater part of it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._here: dict[Request, None] = {}

    def add(self, request: Request) -> None:
        """Watch `request`, if it has a deadline."""
        if request.deadline is not None:
            self._here[request] = None
            heapq.heappush(self._heap, (request.deadline, request.arrival, request))

    def discard(self, request: Request) -> None:
        """Forget `request`, if it is watched."""
        if request in self._here:
            del self._here[request]
            self._compact()

    def next(self) -> float | None:
        """Return the earliest deadline; None when there is none."""
        while self._heap and self._heap[0][2] not in self._here:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_passed(self, now: float) -> list[Request]:
        """Forget and return the requests whose deadline is not after `now`, the earliest deadline first."""
        passed = []
        while (deadline := self.next()) is not None and deadline <= now:
            request = heapq.heappop(self._heap)[2]
            del self._here[request]
            passed.append(request)
        self._compact()
        return passed

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._here) + SPARE:
            self._heap = [entry for entry in self._heap if entry[2] in self._here]
            heapq.heapify(self._heap)

    def check_invariants(self) -> None:
        """Raise AssertionError unless every watched request is in the heap once, beside few that have left."""
        watched = [request for _, _, request in self._heap if request in self._here]
        assert len(watched) == len(self._here) == len({*watched}), f"{len(watched)} of {len(self._here)} in the heap"
        assert len(self._heap) <= 2 * len(self._here) + SPARE, f"{len(self._heap)} entries for {len(self._here)}"

"""The deadlines of waiting and running requests."""

import heapq

from local_worker.core.request import Request

SPARE = 16  # entries of removed requests that a small heap may keep


class Deadlines:
    """A heap of requests by deadline, with lazy deletion.

    The heap is rebuilt when removed requests are the larger part of it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._watched: dict[Request, None] = {}

    def add(self, request: Request) -> None:
        """Watch `request`; do nothing if it has no deadline."""
        if request.deadline is not None:
            self._watched[request] = None
            heapq.heappush(self._heap, (request.deadline, request.arrival, request))

    def discard(self, request: Request) -> None:
        """Stop watching `request`; do nothing if it is not watched."""
        if request in self._watched:
            del self._watched[request]
            self._compact()

    def next(self) -> float | None:
        """Return the earliest deadline in seconds; None when no request is watched."""
        while self._heap and self._heap[0][2] not in self._watched:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_passed(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadline is not after `now` (seconds), earliest deadline first."""
        passed = []
        while (deadline := self.next()) is not None and deadline <= now:
            request = heapq.heappop(self._heap)[2]
            del self._watched[request]
            passed.append(request)
        self._compact()
        return passed

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._watched) + SPARE:
            self._heap = [entry for entry in self._heap if entry[2] in self._watched]
            heapq.heapify(self._heap)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the heap holds each watched request once, and not too many removed requests."""
        watched = [request for _, _, request in self._heap if request in self._watched]
        assert len(watched) == len(self._watched) == len({*watched}), (
            f"{len(watched)} of {len(self._watched)} in the heap"
        )
        assert len(self._heap) <= 2 * len(self._watched) + SPARE, f"{len(self._heap)} entries for {len(self._watched)}"

"""Steps under way: planned, and neither committed nor failed."""

from collections import deque
from collections.abc import Iterable

from local_worker.core.batch import Batch
from local_worker.core.request import Request


class InFlight:
    """Owns `Request.in_flight`, and moves `computed` on to where a launched batch will have brought a request."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()  # the oldest first
        self._sources: dict[Request, int] = {}  # places among the newest batch's samples

    def __bool__(self) -> bool:
        return bool(self._batches)

    def launched(self, batch: Batch) -> None:
        """`batch` will be computed after those before it."""
        self._batches.append(batch)
        sampled = [piece.request for piece in batch.slices if piece.samples]
        self._sources = {request: place for place, request in enumerate(sampled)}
        for request in sampled:
            request.in_flight += 1
        for piece in batch.slices:
            piece.request.computed = piece.stop

    def landed(self) -> None:
        """The oldest batch is computed, or has failed."""
        for piece in self._batches.popleft().slices:
            piece.request.in_flight -= piece.samples

    def source(self, request: Request) -> int | None:
        """Where among the newest batch's samples `request`'s last token is; None when the token is known."""
        return self._sources[request] if request.in_flight else None

    def check_invariants(self, running: Iterable[Request]) -> None:
        """Raise AssertionError unless what `running` has in flight is what these batches sample."""
        for request in running:
            samples = [piece.samples for batch in self._batches for piece in batch.slices if piece.request is request]
            assert request.in_flight == sum(samples), f"{request.id}: {request.in_flight} in flight, {samples} launched"
            assert request.computed <= request.due, f"{request.id}: {request.computed} computed, {request.due} due"

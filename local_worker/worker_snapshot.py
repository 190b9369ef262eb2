"""The current state of the worker, with which a stream to a scheduler begins."""

import time
from collections.abc import Callable, Iterable

from fairlead.v1 import scheduler_pb2
from local_worker.attempt import AttemptAccepted
from local_worker.messages import to_accepted
from local_worker.step_events import ClientAccountReport, EngineLoad, StepEvents
from serving.blocks import runs
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap

# Time for which a worker whose steps keep failing reports itself as draining. Requests after that time show whether it
# has recovered.
BACKOFF_SECONDS = 5.0


class WorkerSnapshot:
    """The worker's state as the sum of all StepEvents so far.

    A new stream thus begins with a snapshot that agrees with the events that follow on it, and no state of the engine's
    thread is read.
    """

    def __init__(
        self,
        hello: scheduler_pb2.Hello,
        stepping_since: Callable[[], float | None] = lambda: None,
        backoff_seconds: float = BACKOFF_SECONDS,
        most_idle: int = MOST_IDLE,
    ) -> None:
        self._stepping_since = stepping_since
        self._backoff_seconds = backoff_seconds
        self.draining = False
        self.services: BoundedClientMap[str, ClientAccountReport] = BoundedClientMap(most_idle)
        self._hello = hello
        self._load = EngineLoad()
        self._oldest: float | None = None
        self._draining_until = 0.0
        self._delivered_at = 0.0
        self._cached: dict[int, int] = {}  # digest of each cached block -> that of its parent; parents first
        self._requests: dict[tuple[str, int], AttemptAccepted] = {}  # waiting and running attempts

    def deliver(self, out: StepEvents) -> None:
        """Apply the events of one turn of the engine loop."""
        self._oldest = out.oldest_queued_at
        self._draining_until = 0.0 if out.healthy else time.monotonic() + self._backoff_seconds
        for service in out.services:
            self._serve(service)
        self._load = out.load
        self._delivered_at = time.monotonic()
        for digest in out.evicted:
            self._cached.pop(digest, None)
        for digest, parent in out.cached:
            # Removed before it is inserted: a block that is cached again must follow its parent.
            self._cached.pop(digest, None)
            self._cached[digest] = parent
        self._requests.update(((request.request_id, request.attempt), request) for request in out.accepted)
        for end in out.ended:
            self._requests.pop((end.request_id, end.attempt), None)

    def _serve(self, service: ClientAccountReport) -> None:
        client = service.client
        self.services[client] = service
        if service.waiting or service.running:
            self.services.activate(client)
        else:
            self.services.rest(client)

    def hello(self) -> scheduler_pb2.Hello:
        """Return the worker's identity with its cached blocks and its unfinished requests."""
        hello = scheduler_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.cached.extend(to_proto(self._cached.items()))
        hello.requests.extend(map(to_accepted, self._requests.values()))
        return hello

    @property
    def is_draining(self) -> bool:
        """Whether the worker takes no requests now, because it stops or because its steps fail."""
        return self.draining or time.monotonic() < self._draining_until

    def load(self) -> scheduler_pb2.Load:
        """Return the current load of the worker, without the clients' accounts."""
        levels = [scheduler_pb2.LevelGap(level=each.level, gap=each.gap) for each in self._load.levels]
        load = scheduler_pb2.Load(**{**self._load._asdict(), "levels": levels})
        now = time.monotonic()
        load.draining = self.is_draining
        load.queue_seconds = 0.0 if self._oldest is None else now - self._oldest
        load.stalled_seconds = now - self._delivered_at if load.running or load.waiting else 0.0
        # If the first step never ends, no event of its requests has been delivered: the step's start counts.
        if (began := self._stepping_since()) is not None:
            load.stalled_seconds = max(load.stalled_seconds, now - began)
        return load


def to_proto(links: Iterable[tuple[int, int]]) -> list[scheduler_pb2.BlockRun]:
    """Convert pairs (digest, digest of its parent) to block runs."""
    return [scheduler_pb2.BlockRun(parent=run.parent, digests=run.digests) for run in runs(links)]

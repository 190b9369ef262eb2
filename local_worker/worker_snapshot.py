"""The current state of the worker, with which a stream to a scheduler begins."""

import time
from collections.abc import Callable, Iterable

from fairlead.v1 import scheduler_pb2
from local_worker.core.events import ClientAccountReport, EngineLoad, RequestAccepted, WorkerUpdate
from local_worker.core.request import Request
from local_worker.wire import to_accepted, to_block_runs, to_load
from serving.blocks import pack_digests
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap
from serving.kv_events.core.block_rehash import TierChange

# Time for which a worker whose steps keep failing reports itself as draining. Requests after that time show whether it
# has recovered.
BACKOFF_SECONDS = 5.0


class SlowerBlocks:
    """The latest change of each block in an engine's slower memories, by tier: its parent, or None if evicted."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[int, int | None]] = {}

    def changed(self, changes: Iterable[TierChange], *, keeps_evicted: bool) -> None:
        """Apply changes in their order; a snapshot keeps no block that was evicted."""
        for change in changes:
            blocks = self._tiers.setdefault(change.tier, {})
            for digest in change.evicted:  # removed before it is inserted: the order is that of the latest changes
                blocks.pop(digest, None)
                if keeps_evicted:
                    blocks[digest] = None
            for digest, parent in change.cached:
                blocks.pop(digest, None)
                blocks[digest] = parent

    def messages(self) -> list[scheduler_pb2.SlowerBlocks]:
        """Return a message for each tier of which there is something to tell."""
        return [
            scheduler_pb2.SlowerBlocks(
                tier=tier,
                cached=to_block_runs((digest, parent) for digest, parent in blocks.items() if parent is not None),
                evicted=pack_digests([digest for digest, parent in blocks.items() if parent is None]),
            )
            for tier, blocks in self._tiers.items()
            if blocks
        ]


class WorkerSnapshot:
    """The worker's state as the sum of all updates so far.

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
        self._slower = SlowerBlocks()
        self._requests: dict[Request, RequestAccepted] = {}  # waiting and running requests

    def deliver(self, update: WorkerUpdate) -> None:
        """Apply the update of one turn of the engine loop."""
        self._draining_until = 0.0 if update.healthy else time.monotonic() + self._backoff_seconds
        for account in update.accounts:
            self.services[account.client] = account
            if account.waiting or account.running:
                self.services.activate(account.client)
            else:
                self.services.rest(account.client)
        if update.load is not None:
            self._load, self._oldest = update.load, update.oldest_queued_at
        self._delivered_at = time.monotonic()
        for digest in update.evicted:
            self._cached.pop(digest, None)
        for digest, parent in update.cached:
            # Removed before it is inserted: a block that is cached again must follow its parent.
            self._cached.pop(digest, None)
            self._cached[digest] = parent
        if update.slower:
            self._slower.changed(update.slower, keeps_evicted=False)
        for accepted in update.events.accepted:
            self._requests[accepted.request] = accepted
        for request in update.events.computed:
            self._requests[request] = RequestAccepted(request, request.prompt_tokens - request.seed_position)
        for end in update.events.ended:
            self._requests.pop(end.request, None)

    def hello(self) -> scheduler_pb2.Hello:
        """Return the worker's identity with its cached blocks and its unfinished requests."""
        hello = scheduler_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.cached.extend(to_block_runs(self._cached.items()))
        hello.slower.extend(self._slower.messages())
        hello.requests.extend(map(to_accepted, self._requests.values()))
        return hello

    @property
    def is_draining(self) -> bool:
        """Whether the worker takes no requests now, because it stops or because its steps fail."""
        return self.draining or time.monotonic() < self._draining_until

    def load(self) -> scheduler_pb2.Load:
        """Return the current load of the worker, without the clients' accounts."""
        load = to_load(self._load)
        now = time.monotonic()
        load.draining = self.is_draining
        load.queue_seconds = 0.0 if self._oldest is None else now - self._oldest
        load.stalled_seconds = now - self._delivered_at if load.running or load.waiting else 0.0
        # If the first step never ends, no event of its requests has been delivered: the step's start counts.
        if (began := self._stepping_since()) is not None:
            load.stalled_seconds = max(load.stalled_seconds, now - began)
        return load

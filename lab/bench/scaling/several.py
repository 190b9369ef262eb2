"""Several schedulers in place of one: each for a part of the users, or each for a cell of the workers."""

import zlib
from collections.abc import Sequence

from global_scheduler.core.dispatcher import Assignment, Dispatcher
from global_scheduler.core.fleet import Member, WorkerIdentity, WorkerLoad
from global_scheduler.core.policies import RouteRequest
from serving.blocks import BlockRun


class ByUser(Dispatcher):
    """Schedulers over one pool, each for the users that hash to it.

    A worker's reports about a user's calls reach only that user's scheduler; its load and its evictions reach all. Each
    scheduler infers the cached blocks from its own calls.
    """

    def __init__(self, schedulers: Sequence[Dispatcher]) -> None:
        self._schedulers = schedulers
        self._members: dict[str, list[Member]] = {}  # worker to its members, one per scheduler
        self._owners: dict[str, int] = {}  # call id to scheduler, for calls that have not ended

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """See Dispatcher."""
        owner = self._owners[request.request_id] = self._owner(request)
        return self._schedulers[owner].dispatch(request, now, source)

    def _owner(self, request: RouteRequest) -> int:
        return zlib.crc32(request.client.encode()) % len(self._schedulers)

    def accepted(self, member: Member, request: RouteRequest, now: float, cached_tokens: int = 0) -> None:
        """See Dispatcher."""
        owner = self._owner(request)
        self._schedulers[owner].accepted(self._of(member)[owner], request, now, cached_tokens)

    def computed(self, member: Member, request_id: str, attempt: int) -> None:
        """See Dispatcher."""
        owner = self._owners[request_id]
        self._schedulers[owner].computed(self._of(member)[owner], request_id, attempt)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """See Dispatcher."""
        owner = self._owners.pop(request_id)
        self._schedulers[owner].ended(self._of(member)[owner], request_id, attempt, started, output_tokens)

    def attached(self, identity: WorkerIdentity, cached: Sequence[BlockRun], now: float) -> Member:
        """See Dispatcher."""
        members = [scheduler.attached(identity, cached, now) for scheduler in self._schedulers]
        self._members[identity.worker] = members
        return members[0]

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.reported(own, load, now)

    def progressed(self, member: Member, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.progressed(own, (), evicted)

    def live(self, now: float) -> list[Member]:
        """See Dispatcher."""
        return self._schedulers[0].live(now)

    def overloaded(self, now: float) -> dict[str, bool]:
        """See Dispatcher."""
        return self._schedulers[0].overloaded(now)

    def _of(self, member: Member) -> list[Member]:
        return self._members[member.identity.worker]


class ByUserInformed(ByUser):
    """Schedulers as in ByUser, but workers send all reports to all of them, so each one books and indexes all calls."""

    def accepted(self, member: Member, request: RouteRequest, now: float, cached_tokens: int = 0) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.accepted(own, request, now, cached_tokens)

    def computed(self, member: Member, request_id: str, attempt: int) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.computed(own, request_id, attempt)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """See Dispatcher."""
        del self._owners[request_id]
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.ended(own, request_id, attempt, started, output_tokens)

    def progressed(self, member: Member, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.progressed(own, cached, evicted)


class Cells(Dispatcher):
    """Two levels of schedulers: an upper one whose members are cells of `size` workers, and one scheduler per cell.

    The upper scheduler receives, per cell, the number of its open calls, whether all of its workers have requests
    waiting, and the prompts sent there. It receives nothing about single workers and their cached or evicted blocks.
    """

    def __init__(self, upper: Dispatcher, cells: Sequence[Dispatcher], size: int) -> None:
        self._upper = upper
        self._cells = cells
        self._size = size
        self._above: dict[int, Member] = {}  # upper scheduler's member of each cell
        self._numbers: dict[str, int] = {}  # worker -> cell
        self._loads: list[dict[str, WorkerLoad]] = [{} for _ in cells]

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """See Dispatcher."""
        chosen = self._upper.dispatch(request, now, source)
        return (
            None if chosen is None else self._cells[int(chosen.member.identity.worker)].dispatch(request, now, source)
        )

    def accepted(self, member: Member, request: RouteRequest, now: float, cached_tokens: int = 0) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].accepted(member, request, now, cached_tokens)
        self._upper.accepted(self._above[cell], request, now, cached_tokens)

    def computed(self, member: Member, request_id: str, attempt: int) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].computed(member, request_id, attempt)
        self._upper.computed(self._above[cell], request_id, attempt)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].ended(member, request_id, attempt, started, output_tokens)
        self._upper.ended(self._above[cell], request_id, attempt, started, output_tokens)

    def attached(self, identity: WorkerIdentity, cached: Sequence[BlockRun], now: float) -> Member:
        """Attach a worker; workers attach in the order of their cells. See Dispatcher."""
        cell = self._numbers[identity.worker] = len(self._numbers) // self._size
        if cell not in self._above:
            whole = WorkerIdentity(
                str(cell),
                "",
                "",
                identity.revisions,
                identity.block_tokens,
                self._size * identity.kv_tokens,
                self._size * identity.max_running,
            )
            self._above[cell] = self._upper.attached(whole, (), now)
        return self._cells[cell].attached(identity, cached, now)

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].reported(member, load, now)
        loads = self._loads[cell]
        loads[member.identity.worker] = load
        waiting = min(each.waiting for each in loads.values())
        self._upper.reported(self._above[cell], WorkerLoad(sum(each.running for each in loads.values()), waiting), now)

    def progressed(self, member: Member, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """See Dispatcher."""
        self._cells[self._numbers[member.identity.worker]].progressed(member, cached, evicted)

    def live(self, now: float) -> list[Member]:
        """See Dispatcher."""
        return [member for cell in self._cells for member in cell.live(now)]

    def overloaded(self, now: float) -> dict[str, bool]:
        """See Dispatcher."""
        return self._upper.overloaded(now)

"""Several schedulers in the place of one: each for a part of the users, or each for a cell of the workers."""

import zlib
from collections.abc import Sequence

from global_scheduler.core.dispatcher import Assignment, Dispatcher
from global_scheduler.core.fleet import Member, WorkerIdentity, WorkerLoad
from global_scheduler.core.policies import RouteRequest
from serving.blocks import BlockRun


class ByUser(Dispatcher):
    """Over one pool, by hash of the user. What a worker says of a user's calls goes to that user's scheduler alone, its
    load and what it evicts to all; what it caches they know by the calls that they sent there."""

    def __init__(self, schedulers: Sequence[Dispatcher]) -> None:
        self._schedulers = schedulers
        self._members: dict[str, list[Member]] = {}  # by worker, one per scheduler
        self._owners: dict[str, int] = {}  # of calls that have not ended

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """See Dispatcher."""
        owner = self._owners[request.request_id] = self._owner(request)
        return self._schedulers[owner].dispatch(request, now, source)

    def _owner(self, request: RouteRequest) -> int:
        return zlib.crc32(request.client.encode()) % len(self._schedulers)

    def accepted(self, member: Member, request: RouteRequest, now: float) -> None:
        """See Dispatcher."""
        owner = self._owner(request)
        self._schedulers[owner].accepted(self._of(member)[owner], request, now)

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

    def overloaded(self, now: float) -> dict[str, bool]:
        """See Dispatcher."""
        return self._schedulers[0].overloaded(now)

    def _of(self, member: Member) -> list[Member]:
        return self._members[member.identity.worker]


class ByUserInformed(ByUser):
    """As ByUser, but workers tell every scheduler everything: each books and indexes the others' calls as well."""

    def accepted(self, member: Member, request: RouteRequest, now: float) -> None:
        """See Dispatcher."""
        for scheduler, own in zip(self._schedulers, self._of(member), strict=True):
            scheduler.accepted(own, request, now)

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
    """The same one level up: a dispatcher whose members are cells of `size` workers, then the cell's own.

    The upper one knows of a cell how many calls it has under way, whether all of its workers have requests waiting, and
    what was sent there: nothing of single workers, and nothing of what they cache and evict.
    """

    def __init__(self, upper: Dispatcher, cells: Sequence[Dispatcher], size: int) -> None:
        self._upper = upper
        self._cells = cells
        self._size = size
        self._above: dict[int, Member] = {}  # by cell
        self._numbers: dict[str, int] = {}  # worker -> cell
        self._loads: list[dict[str, WorkerLoad]] = [{} for _ in cells]

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """See Dispatcher."""
        chosen = self._upper.dispatch(request, now, source)
        return (
            None if chosen is None else self._cells[int(chosen.member.identity.worker)].dispatch(request, now, source)
        )

    def accepted(self, member: Member, request: RouteRequest, now: float) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].accepted(member, request, now)
        self._upper.accepted(self._above[cell], request, now)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """See Dispatcher."""
        cell = self._numbers[member.identity.worker]
        self._cells[cell].ended(member, request_id, attempt, started, output_tokens)
        self._upper.ended(self._above[cell], request_id, attempt, started, output_tokens)

    def attached(self, identity: WorkerIdentity, cached: Sequence[BlockRun], now: float) -> Member:
        """See Dispatcher; workers come in the order of their cells."""
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

    def overloaded(self, now: float) -> dict[str, bool]:
        """See Dispatcher."""
        return self._upper.overloaded(now)

"""The scheduler's decisions: index, fleet and policy moved together (DLPM Alg. 2).

A booking is what a decision leaves behind: a place in the worker's queue, a charge, and the blocks that are expected
there. It ends when the worker reports the request's end, when the gateway withdraws it, or with the worker. A gateway
that dies before it submits would leave it for ever: see `gone`.

A worker reports the requests that came to it. Those of which nothing is known here, because a gateway chose for itself
or another scheduler did, are booked then: so a standby's accounts are those of the scheduler that it stands by for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.fleet import Fleet, Member, WorkerIdentity, WorkerLoad
from global_scheduler.core.overload import Overload
from global_scheduler.core.policies import Candidates, RoutePolicy, RouteRequest
from serving.blocks import BlockRun

Key = tuple[str, int]  # request id, attempt


@dataclass(slots=True, eq=False)
class Assignment:
    """Where a request goes. `expected`: the index counts on its blocks; `source`: which stream asked, if one did."""

    request: RouteRequest
    member: Member
    matched_tokens: int
    expected: bool
    source: int | None


class Dispatcher:
    """What is said twice, or of an unknown request, changes nothing."""

    def __init__(self, policy: RoutePolicy, index: BlockIndex, fleet: Fleet) -> None:
        self.policy = policy
        self.placed_by_others = 0  # requests booked because a worker had them
        self._index = index
        self._fleet = fleet
        self._assignments: dict[Key, Assignment] = {}
        self._unaccepted: dict[int, dict[Key, None]] = {}  # source -> its assignments that no worker has confirmed
        self._overload: dict[str, Overload] = {}

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """Alg. 2 lines 13-18, one atomic step; None when there is no candidate."""
        key = (request.request_id, request.attempt)
        if key in self._assignments:
            return self._assignments[key]
        candidates = self._fleet.candidates(request.model, request.excluded, now)
        if not candidates:
            return None
        longest, blocks = self._index.match(request.digests, candidates)
        block_tokens = self._fleet.at(longest.bit_length() - 1).identity.block_tokens
        matched, fleet = blocks * block_tokens, self._fleet
        slot = self.policy.select(request, Candidates(candidates, longest, matched, fleet.waiting, fleet.queues))
        if not longest >> slot & 1:
            _, blocks = self._index.match(request.digests, 1 << slot)
        member = self._fleet.at(slot)
        self._fleet.booked(member, 1)
        # A worker of another revision will hold these tokens under other digests.
        is_same = member.identity.revisions[request.model] == request.revision
        expected = is_same and self._index.expect(slot, request.digests)
        matched = blocks * member.identity.block_tokens
        assignment = self._assignments[key] = Assignment(request, member, matched, expected, source)
        self._unaccepted.setdefault(source, {})[key] = None
        return assignment

    def withdrawn(self, request_id: str, attempt: int) -> None:
        """The gateway gave the assignment up before it started. A worker that has it all the same says how it ended."""
        key = (request_id, attempt)
        assignment = self._assignments.get(key)
        if assignment is not None and self._is_unaccepted(key, assignment):
            self._take(key)
            self._undo(assignment)

    def gone(self, source: int) -> None:
        """The stream `source` ended some time ago: what no worker has accepted since will never come to one."""
        for key in list(self._unaccepted.get(source, ())):
            self.withdrawn(*key)

    def accepted(self, member: Member, request: RouteRequest, now: float) -> None:
        """`member` has the request; one that was placed without this scheduler is booked as if it had been here."""
        key = (request.request_id, request.attempt)
        assignment = self._assignments.get(key)
        if assignment is not None:
            if assignment.member is member:
                self._is_accepted(key, assignment)
        elif self._fleet.is_current(member):
            self.placed_by_others += 1
            self._fleet.booked(member, 1)
            candidates = self._fleet.candidates(request.model, (), now) | 1 << member.slot
            self.policy.follow(request, member.slot, candidates)
            self._assignments[key] = Assignment(request, member, 0, expected=False, source=None)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """Lines 20-23: `member` reports the end; ignored unless the request was its own."""
        key = (request_id, attempt)
        assignment = self._assignments.get(key)
        if assignment is None or assignment.member is not member:
            return
        self._take(key)
        if not started:
            self._undo(assignment)
            return
        self._fleet.booked(member, -1)
        if assignment.expected:
            # The first token comes after the whole prompt.
            settle = self._index.confirm if output_tokens else self._index.withdraw
            settle(member.slot, assignment.request.digests)
        self.policy.ended(assignment.request, member.slot, output_tokens)

    def attached(self, identity: WorkerIdentity, cached: Sequence[BlockRun], now: float) -> Member:
        """A worker came, with a snapshot of its blocks; an earlier member of that name is lost."""
        earlier = self._fleet.find(identity.worker)
        if earlier is not None:
            self.lost(earlier)
        member = self._fleet.attach(identity, now)
        self._index.cached(member.slot, cached)
        return member

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        """The worker's load."""
        self._fleet.reported(member, load, now)

    def progressed(self, member: Member, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """Lines 25-27: the worker's cache changed. `evicted`: packed digests, the ends of chains first."""
        if self._fleet.is_current(member):
            self._index.evicted(member.slot, evicted)
            self._index.cached(member.slot, cached)

    def lost(self, member: Member) -> None:
        """The attachment ended: its bookings and blocks are dropped."""
        if not self._fleet.is_current(member):
            return
        for key in [key for key, a in self._assignments.items() if a.member is member]:
            self._take(key)
        self._index.forget(member.slot)
        self.policy.forget(member.slot)
        self._fleet.remove(member)

    def expired(self, now: float) -> list[Member]:
        """The members that are stale: to be given up."""
        return self._fleet.stale(now)

    def live(self, now: float) -> list[Member]:
        """The members that are there and make steps, by slot."""
        return self._fleet.live(now)

    def overloaded(self, now: float) -> dict[str, bool]:
        """Return each live pool's overload, by model. A worker counts in the pool of each of its models, since their
        requests wait in one queue; a worker that drains, or rests, counts in none."""
        pools: dict[str, list[Member]] = {}
        for member in self._fleet.live(now):
            for model in member.identity.revisions:
                pool = pools.setdefault(model, [])
                if not member.load.draining:
                    pool.append(member)
        self._overload = {model: self._overload.get(model) or Overload() for model in sorted(pools)}
        return {model: overload.update(pools[model], now) for model, overload in self._overload.items()}

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for part in (self.policy, self._index, self._fleet):
            part.check_invariants()
        outstanding: dict[str, int] = {}
        for member in [assignment.member for assignment in self._assignments.values()]:
            name = member.identity.worker
            assert self._fleet.is_current(member), f"{name} is gone and has bookings"
            outstanding[name] = outstanding.get(name, 0) + 1
        for member in self._fleet.live(float("-inf")):
            expected = outstanding.get(member.identity.worker, 0)
            assert member.outstanding == expected, f"{member.identity.worker}: {member.outstanding}, not {expected}"
        for source, keys in self._unaccepted.items():
            assert keys, f"source {source} is kept without bookings"
            strangers = [key for key in keys if self._assignments[key].source != source]
            assert not strangers, f"source {source}: {strangers}"

    def _take(self, key: Key) -> None:
        self._is_accepted(key, self._assignments.pop(key))

    def _is_accepted(self, key: Key, assignment: Assignment) -> None:
        source = assignment.source
        if source is not None and self._is_unaccepted(key, assignment):
            del self._unaccepted[source][key]
            if not self._unaccepted[source]:
                del self._unaccepted[source]

    def _is_unaccepted(self, key: Key, assignment: Assignment) -> bool:
        return assignment.source is not None and key in self._unaccepted.get(assignment.source, {})

    def _undo(self, assignment: Assignment) -> None:
        member = assignment.member
        self._fleet.booked(member, -1)
        self.policy.refunded(assignment.request, member.slot)
        if assignment.expected:
            self._index.withdraw(member.slot, assignment.request.digests)

"""The scheduler's decisions: index, fleet and policy moved together (DLPM Alg. 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.fleet import Fleet, Identity, Load, Member
from global_scheduler.core.overload import Overload
from global_scheduler.core.policies import Policy, Request


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a request goes. `speculative`: the blocks that the index expects there because of it."""

    request: Request
    member: Member
    matched_tokens: int
    speculative: tuple[int, ...]


class Dispatcher:
    """Assignments are keyed by (request id, attempt): what is said twice, or of an unknown one, changes nothing."""

    def __init__(self, policy: Policy, index: BlockIndex, fleet: Fleet) -> None:
        self._policy = policy
        self._index = index
        self._fleet = fleet
        self._assignments: dict[tuple[str, int], Assignment] = {}
        self._overload: dict[str, Overload] = {}

    def dispatch(self, request: Request, now: float) -> Assignment | None:
        """Alg. 2 lines 13-18, one atomic step; None when there is no candidate."""
        key = (request.request_id, request.attempt)
        if key in self._assignments:
            return self._assignments[key]
        candidates = self._fleet.candidates(request.model, request.excluded, now)
        if not candidates:
            return None
        longest, _ = self._index.match(request.digests, sum(1 << m.slot for m in candidates))
        member = self._policy.select(request, candidates, longest)
        _, blocks = self._index.match(request.digests, 1 << member.slot)
        speculative = self._index.insert(member.slot, request.digests)
        member.outstanding += 1
        matched = blocks * member.identity.block_tokens
        assignment = self._assignments[key] = Assignment(request, member, matched, tuple(speculative))
        return assignment

    def withdrawn(self, request_id: str, attempt: int) -> None:
        """The gateway gave the assignment up: it never started."""
        assignment = self._assignments.pop((request_id, attempt), None)
        if assignment is not None:
            self._undo(assignment)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """Lines 20-23: `member` reports the end; ignored unless the assignment was its own."""
        assignment = self._assignments.get((request_id, attempt))
        if assignment is None or assignment.member is not member:
            return
        del self._assignments[request_id, attempt]
        if not started:
            self._undo(assignment)
            return
        member.outstanding -= 1
        self._policy.ended(assignment.request, member.slot, output_tokens)

    def attached(self, identity: Identity, cached: Sequence[int], now: float) -> Member:
        """A worker came, with a snapshot of its blocks; an earlier member of that name is lost."""
        earlier = self._fleet.find(identity.worker)
        if earlier is not None:
            self.lost(earlier)
        member = self._fleet.attach(identity, now)
        self._index.insert(member.slot, cached)
        return member

    def reported(self, member: Member, load: Load, now: float) -> None:
        """The worker's load."""
        member.load, member.reported_at = load, now

    def progressed(self, member: Member, cached: Sequence[int], evicted: Sequence[int]) -> None:
        """Lines 25-27: the worker's cache changed."""
        if self._fleet.is_current(member):
            self._index.evict(member.slot, evicted)
            self._index.insert(member.slot, cached)

    def lost(self, member: Member) -> None:
        """The attachment ended: its assignments and blocks are dropped."""
        if not self._fleet.is_current(member):
            return
        for key in [key for key, a in self._assignments.items() if a.member is member]:
            del self._assignments[key]
        self._index.forget(member.slot)
        self._policy.forget(member.slot)
        self._fleet.remove(member)

    def live(self, now: float) -> list[Member]:
        """The members that are not stale, by slot."""
        return self._fleet.live(now)

    def overloaded(self, now: float) -> dict[str, bool]:
        """Each live pool's overload, by model."""
        pools: dict[str, list[Member]] = {}
        for member in self._fleet.live(now):
            pools.setdefault(member.identity.model, []).append(member)
        self._overload = {model: self._overload.get(model) or Overload() for model in sorted(pools)}
        return {model: overload.update(pools[model], now) for model, overload in self._overload.items()}

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for part in (self._policy, self._index, self._fleet):
            part.check_invariants()
        outstanding: dict[str, int] = {}
        for key, assignment in self._assignments.items():
            assert self._fleet.is_current(assignment.member), f"{key} is assigned to a member that is gone"
            name = assignment.member.identity.worker
            outstanding[name] = outstanding.get(name, 0) + 1
        for member in self._fleet.live(float("-inf")):
            expected = outstanding.get(member.identity.worker, 0)
            assert member.outstanding == expected, f"{member.identity.worker}: {member.outstanding}, not {expected}"

    def _undo(self, assignment: Assignment) -> None:
        member = assignment.member
        member.outstanding -= 1
        self._policy.refunded(assignment.request, member.slot)
        self._index.evict(member.slot, assignment.speculative)

"""The scheduler's decisions: keeps index, fleet and policy consistent (DLPM Alg. 2).

A decision creates a booking: one outstanding request of the worker, a charge, and the blocks that are expected there. A
booking ends when the worker reports the request's end, when the gateway withdraws it, or when the worker is lost. If a
gateway dies before it submits, `gone` ends the booking.

A worker reports the requests that it received. A request without a booking was placed by a gateway or by another
scheduler, and is booked then; so a standby has the same accounts as the leader.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from global_scheduler.core.block_index import BlockIndex, SlowerIndex
from global_scheduler.core.fleet import Fleet, Member, WorkerIdentity, WorkerLoad
from global_scheduler.core.overload import Overload
from global_scheduler.core.policies import Candidates, RoutePolicy, RouteRequest
from serving.blocks import BlockRun

AttemptKey = tuple[str, int]  # request id, attempt


@dataclass(slots=True, eq=False)
class Assignment:
    """The booking of a request at a worker.

    `booked` is what the policy booked for it, in micro-units; less once `is_computed`, its prompt. `expected` tells
    whether the index expects its blocks there; `source` is the Dispatch stream that asked, until the worker accepts it.
    """

    request: RouteRequest
    member: Member
    matched_tokens: int
    booked: int
    expected: bool
    source: int | None
    is_computed: bool = False


MOST_UNDONE = 10_000  # that are remembered; a worker's report is later by milliseconds, an attachment by seconds


class Dispatcher:
    """Place requests and follow them to their ends. Repeated events and events of unknown requests change nothing.

    Interactive requests are placed by `policy`, as if there were no others. Background requests are placed by `below`,
    which keeps accounts of them alone, beside the queues of all; without it they are placed like the others.
    """

    def __init__(self, policy: RoutePolicy, index: BlockIndex, fleet: Fleet, below: RoutePolicy | None = None) -> None:
        self.policy = policy
        self._below = below or policy
        self.placed_by_others = 0  # requests that another process placed, which a worker reported
        self._undone: dict[AttemptKey, None] = {}  # recent ones that were withdrawn, or lost with their worker
        self._index = index
        self._slower = SlowerIndex(index.max_blocks)
        self._fleet = fleet
        self._assignments: dict[AttemptKey, Assignment] = {}
        self._unaccepted: dict[
            int, dict[AttemptKey, None]
        ] = {}  # by source: assignments that no worker has accepted yet
        self._overload: dict[str, Overload] = {}

    def dispatch(self, request: RouteRequest, now: float, source: int = 0) -> Assignment | None:
        """Place `request` (Alg. 2 lines 13-18, one atomic step); return None if no worker is a candidate."""
        key = (request.request_id, request.attempt)
        if key in self._assignments:
            return self._assignments[key]
        candidates = self._fleet.candidates(request.model, request.excluded, now)
        if not candidates:
            return None
        matches = self._index.matches(request.digests, candidates)
        if self._slower:
            matches = self._slower.lengthened(matches, request.digests)
        block_tokens = self._fleet.at(matches[-1][0].bit_length() - 1).identity.block_tokens
        queues = self._fleet.all_queues if request.background else self._fleet.queues
        choice = Candidates(matches, block_tokens, self._fleet.waiting, queues)
        member = self._fleet.at(self._policy_of(request).select(request, choice))
        matched_tokens = choice.tokens_at(member.slot)
        # A worker of another model revision caches these tokens under other digests.
        is_same = member.identity.revisions[request.model] == request.revision
        expected = is_same and self._index.expect(member.slot, request.digests)
        if expected:
            self._slower.expect(member.slot, request.digests)
        assignment = self._book(key, request, member, candidates, matched_tokens, expected, source)
        self._unaccepted.setdefault(source, {})[key] = None
        return assignment

    def withdrawn(self, request_id: str, attempt: int) -> None:
        """Undo an assignment that the gateway withdrew; if a worker has accepted it, that worker's report ends it."""
        key = (request_id, attempt)
        assignment = self._assignments.get(key)
        if assignment is not None and assignment.source is not None:
            self._take(key)
            self._undo(assignment)
            self._remember(key)

    def gone(self, source: int) -> None:
        """Undo the assignments of a stream that ended some time ago and that no worker has accepted since."""
        for key in list(self._unaccepted.get(source, ())):
            self.withdrawn(*key)

    def accepted(self, member: Member, request: RouteRequest, now: float, cached_tokens: int = 0) -> None:
        """Record that `member` received the request and then had `cached_tokens` of its prompt; book it if another
        process placed it."""
        key = (request.request_id, request.attempt)
        assignment = self._assignments.get(key)
        if assignment is not None:
            if assignment.member is member:
                self._settle_source(key, assignment)
        elif self._fleet.is_current(member):
            # A withdrawal may overtake the worker's report, and a worker that attaches again repeats its requests.
            if key in self._undone:
                del self._undone[key]
            else:
                self.placed_by_others += 1
            candidates = self._fleet.candidates(request.model, (), now) | 1 << member.slot
            self._book(key, request, member, candidates, cached_tokens, expected=False, source=None)

    def computed(self, member: Member, request_id: str, attempt: int) -> None:
        """Record that `member` has computed a request's prompt; ignored unless it is assigned to `member`."""
        assignment = self._assignments.get((request_id, attempt))
        if assignment is not None and assignment.member is member:
            self._computed(assignment)

    def ended(self, member: Member, request_id: str, attempt: int, started: bool, output_tokens: int) -> None:
        """End a request as `member` reports it (lines 20-23); ignored unless it is assigned to `member`."""
        key = (request_id, attempt)
        assignment = self._assignments.get(key)
        if assignment is None or assignment.member is not member:
            return
        self._take(key)
        if not started:
            self._undo(assignment)
            return
        self._count(assignment.request, member, -1)
        if assignment.expected:
            # The first output token exists only after the whole prompt is computed.
            for index in (self._index, self._slower):
                settle = index.confirm if output_tokens else index.withdraw
                settle(member.slot, assignment.request.digests)
        self._computed(assignment)
        self._policy_of(assignment.request).ended(assignment.request, member.slot, assignment.booked, output_tokens)

    def attached(self, identity: WorkerIdentity, cached: Sequence[BlockRun], now: float) -> Member:
        """Add a worker with a snapshot of its cached blocks; an earlier member of the same name is lost."""
        earlier = self._fleet.find(identity.worker)
        if earlier is not None:
            self.lost(earlier)
        member = self._fleet.attach(identity, now)
        self._index.cached(member.slot, cached)
        return member

    def reported(self, member: Member, load: WorkerLoad, now: float) -> None:
        self._fleet.reported(member, load, now)

    def progressed(self, member: Member, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """Record cache changes of a worker (lines 25-27); `evicted` are packed digests, ends of chains first."""
        if self._fleet.is_current(member):
            self._index.evicted(member.slot, evicted)
            if cached:
                self._index.cached(member.slot, cached)

    def slower_progressed(self, member: Member, tier: int, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """Record changes of what a worker holds in the memory of `tier` or a faster one, as `progressed` does those of
        the device's."""
        if self._fleet.is_current(member):
            self._slower.changed(member.slot, tier, cached, evicted)

    def lost(self, member: Member) -> None:
        """Remove a member whose attachment ended, with its bookings and blocks."""
        if not self._fleet.is_current(member):
            return
        for key in [key for key, a in self._assignments.items() if a.member is member]:
            self._take(key)
            self._remember(key)
        self._index.forget(member.slot)
        self._slower.forget(member.slot)
        self.policy.forget(member.slot)
        if self._below is not self.policy:
            self._below.forget(member.slot)
        self._fleet.remove(member)

    def expired(self, now: float) -> list[Member]:
        """Return the stale members, which the caller must declare lost."""
        return self._fleet.stale(now)

    def live(self, now: float) -> list[Member]:
        """Return the members that report in time and make engine steps, by slot."""
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
        for part in (self.policy, self._below, self._index, self._slower, self._fleet):
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

    def _policy_of(self, request: RouteRequest) -> RoutePolicy:
        return self._below if request.background else self.policy

    def _count(self, request: RouteRequest, member: Member, requests: int) -> None:
        (self._fleet.booked_below if request.background else self._fleet.booked)(member, requests)

    def _remember(self, key: AttemptKey) -> None:
        self._undone[key] = None
        if len(self._undone) > MOST_UNDONE:
            del self._undone[next(iter(self._undone))]

    def _book(
        self,
        key: AttemptKey,
        request: RouteRequest,
        member: Member,
        candidates: int,
        matched_tokens: int,
        expected: bool,
        source: int | None,
    ) -> Assignment:
        booked = self._policy_of(request).placed(request, member.slot, candidates, matched_tokens)
        self._count(request, member, 1)
        assignment = self._assignments[key] = Assignment(request, member, matched_tokens, booked, expected, source)
        return assignment

    def _computed(self, assignment: Assignment) -> None:
        """Release the prompt, which the request needs no more."""
        if not assignment.is_computed:
            assignment.is_computed = True
            policy, request, slot = self._policy_of(assignment.request), assignment.request, assignment.member.slot
            assignment.booked = policy.computed(request, slot, assignment.booked, assignment.matched_tokens)

    def _take(self, key: AttemptKey) -> None:
        self._settle_source(key, self._assignments.pop(key))

    def _settle_source(self, key: AttemptKey, assignment: Assignment) -> None:
        """Record that an assignment no longer depends on the stream that asked for it: it is accepted, or over."""
        source, assignment.source = assignment.source, None
        if source is not None:
            del self._unaccepted[source][key]
            if not self._unaccepted[source]:
                del self._unaccepted[source]

    def _undo(self, assignment: Assignment) -> None:
        member = assignment.member
        self._count(assignment.request, member, -1)
        self._computed(assignment)
        self._policy_of(assignment.request).refunded(assignment.request, member.slot, assignment.booked)
        if assignment.expected:
            self._index.withdraw(member.slot, assignment.request.digests)
            self._slower.withdraw(member.slot, assignment.request.digests)

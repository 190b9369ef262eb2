"""A pool of engines that know of no scheduler.

What a picker knows of them follows from what it sent them, and from what they say of themselves to everybody.

The decisions are the scheduler's own (dispatcher.py). A request is booked where it is sent, moves when the proxy says
that another endpoint served it, and ends with its answer. An endpoint is assumed to cache what it was given most
recently, until it reports its blocks itself. It is given no more requests than it runs at once, those of other callers
included; the others wait here, fairly among clients. Of long misses (serving.core.long_misses) an endpoint that reports
its blocks, and so tells when a prompt is computed, has few at a time.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from endpoint_picker.core.endpoint_blocks import RecentBlocks, ReportedBlocks
from endpoint_picker.core.picker_queue import PickerQueue
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet, Member, WorkerIdentity
from global_scheduler.core.policies import RoutePolicy, RouteRequest
from serving.blocks import DIGEST_BYTES, BlockRun, Link, pack_digests, runs, unpack_digests
from serving.core.long_misses import LongMisses
from serving.cost import Cost, charge
from serving.kv_events.core.block_rehash import TierChange

POOL = "pool"  # the dispatcher's one model: every endpoint of a pool serves every model of it, from one queue
REST_SECONDS = 10.0
FALLBACKS = 2  # endpoints that a proxy may try after the first
FULL_KV = 0.9  # of its KV cache: an engine that uses more, while requests wait there, has no memory for another


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSize:
    """The assumed capacity of every endpoint of the pool."""

    running: int  # requests that it runs at once, and that the pool gives it at most
    kv_tokens: int
    block_tokens: int
    token_budget: int | None = None  # tokens of a step; None: long misses are not counted


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """The load that an engine reports: its requests, those of all callers, and the used part of its KV cache."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(slots=True, eq=False)
class Pick:
    """A request at an endpoint; `fallbacks` are the addresses to try after it, the best first."""

    request: RouteRequest
    member: Member
    matched_tokens: int  # of its prompt, which the endpoint probably caches
    fallbacks: Sequence[str]
    is_moved: bool = False

    @property
    def endpoint(self) -> str:
        """The address of the endpoint, as ip:port."""
        return self.member.identity.address


class EndpointPool:
    """The endpoints by address, and the requests that they have."""

    def __init__(
        self, policy: RoutePolicy, cost: Cost, index: BlockIndex, size: EndpointSize, queue: PickerQueue
    ) -> None:
        # Nothing is reported, so that nothing is ever stale: who watches the endpoints says which there are.
        self._fleet = Fleet(math.inf, math.inf)
        self._dispatcher = Dispatcher(policy, index, self._fleet)
        self._size = size
        self._cost = cost
        self._queue = queue
        self._full: set[str] = set()  # endpoints that run as many requests as they can
        self._blocks: dict[str, RecentBlocks | ReportedBlocks] = {}  # of every endpoint
        self._misses: dict[str, LongMisses[Pick]] = {}  # of every endpoint, where steps have a known size
        self._resting: dict[str, float] = {}  # endpoints that a proxy passed over, and until when
        self._outside_engine: dict[str, int] = {}  # by endpoint: requests that have entered and wait there

    @property
    def block_tokens(self) -> int:
        """The size of the blocks in which prefixes are compared."""
        return self._size.block_tokens

    @property
    def endpoints(self) -> list[str]:
        """The addresses of all endpoints, in the order in which they came."""
        return list(self._blocks)

    def set_endpoints(self, addresses: Collection[str], now: float) -> None:
        """Make `addresses` the endpoints. What is known of one that goes is dropped, with its requests' bookings."""
        for address in [address for address in self._blocks if address not in addresses]:
            self._dispatcher.lost(self._member(address))
            del self._blocks[address]
            self._misses.pop(address, None)
            self._resting.pop(address, None)
            self._outside_engine.pop(address, None)
            self._full.discard(address)
        for address in addresses:
            if address not in self._blocks:
                self._blocks[address] = RecentBlocks(self._size.kv_tokens // self._size.block_tokens)
                if self._size.token_budget is not None:
                    self._misses[address] = LongMisses(self._size.token_budget)
                self._dispatcher.attached(self._identity(address), [], now)

    def observed(self, address: str, report: EndpointReport, placed: int, now: float) -> None:
        """Record what the engine at `address` reports; it had `placed` requests of this pool before it was asked.

        The report of an engine without requests undoes what was known. One of an unknown endpoint changes nothing.
        """
        member = self._fleet.find(address)
        if member is None:
            return
        # Requests come and go while an engine answers: what may be the pool's own is not another caller's.
        foreign = report.running + report.waiting - max(placed, self._computing(member))
        self._fleet.set_foreign_requests(member, max(0, foreign))
        used = round(report.kv_usage * self._size.kv_tokens)
        load = replace(member.load, running=report.running, waiting=report.waiting, kv_tokens_used=used)
        self._dispatcher.reported(member, load, now)
        self._changed(member)

    def reports_blocks(self, address: str) -> bool:
        return isinstance(self._blocks.get(address), ReportedBlocks)

    def cache_changed(self, address: str, stored: Sequence[Link], evicted: Sequence[int]) -> None:
        """Record the blocks that an endpoint reports as stored, or the digests of those that it evicted, ends first.

        With its first report it is no longer assumed to cache what it was given. An unknown endpoint changes nothing.
        """
        member = self._fleet.find(address)
        if member is None:
            return
        blocks = self._blocks[address]
        if isinstance(blocks, RecentBlocks):
            self._dispatcher.progressed(member, [], blocks.forgotten())
            blocks = self._blocks[address] = ReportedBlocks()
        blocks.changed(stored, evicted)
        self._dispatcher.progressed(member, runs(stored), pack_digests(evicted))
        if address in self._misses:
            digests = {digest for digest, _ in stored}
            for pick in self._misses[address].long:
                if not digests.isdisjoint(unpack_digests(pick.request.digests[-DIGEST_BYTES:])):
                    self._computed(pick)

    def slower_cache_changed(self, address: str, change: TierChange) -> None:
        """Record what has changed in slower memories of an endpoint; an unknown endpoint changes nothing."""
        if (member := self._fleet.find(address)) is not None:
            self._dispatcher.slower_progressed(member, change.tier, runs(change.cached), pack_digests(change.evicted))

    def others(self, addresses: Collection[str]) -> frozenset[str]:
        """Return the endpoints that are not among `addresses`: those to exclude where these are the only ones."""
        return frozenset(self._blocks.keys() - addresses)

    def has_endpoint(self, request: RouteRequest) -> bool:
        """Return whether `request`, whose `excluded` are addresses, may go anywhere at all."""
        return any(address not in request.excluded for address in self._blocks)

    def place(self, request: RouteRequest, now: float) -> Pick | None:
        """Choose an endpoint with room for `request`; return None if others wait before it, or there is none."""
        self._rested(now)
        if self._queue or not self._has_room(request):
            return None
        self._queue.served(request.client)
        return self._place(request, now)

    def hold(self, request: RouteRequest) -> bool:
        """Let `request` wait; return False if its client has too many requests that wait."""
        return self._queue.add(request)

    def drop(self, request: RouteRequest) -> None:
        self._queue.remove(request)

    def release(self, now: float) -> Pick | None:
        """Place the request that has waited with the least service of its client, if an endpoint has room for one."""
        if not self._queue or len(self._full) == len(self._blocks):
            return None
        self._rested(now)
        return self._place(request, now) if (request := self._queue.next(self._has_room)) else None

    def _has_room(self, request: RouteRequest) -> bool:
        named = [address for address in self._blocks if address not in request.excluded]
        able = [address for address in named if address not in self._resting] or named
        return any(address not in self._full and not self._must_wait(request, address) for address in able)

    def _must_wait(self, request: RouteRequest, address: str) -> bool:
        misses = self._misses.get(address)
        if misses is None or not misses.is_long(request.prompt_tokens):
            return False
        is_closed = misses.is_closed(request.client, misses.most)
        return is_closed and misses.is_long(self._missing(request, address))

    def _missing(self, request: RouteRequest, address: str) -> int:
        """Return the tokens of a prompt that `address` does not cache; 0 if it does not tell what it caches."""
        blocks = self._blocks[address]
        if not isinstance(blocks, ReportedBlocks):
            return 0
        return request.prompt_tokens - self._size.block_tokens * blocks.matched(request.digests)

    def _computed(self, pick: Pick) -> None:
        """Record that the prompt of a request is computed, or never will be where it is."""
        if (misses := self._misses.get(pick.endpoint)) is not None:
            misses.leave(pick, pick.request.client)

    def _place(self, request: RouteRequest, now: float) -> Pick:
        allowed = request.excluded
        if shut := self._full.union(address for address in self._misses if self._must_wait(request, address)):
            request = replace(request, excluded=shut.union(allowed))
        assignment = self._dispatcher.dispatch(request, now)
        if assignment is None:
            self._resting = dict.fromkeys(self._resting, now)  # rather one that failed than none
            self._rested(now)
            assignment = self._dispatcher.dispatch(request, now)
        assert assignment is not None, "an endpoint has room, and is not chosen"
        self._changed(assignment.member)
        self._queue.charge(request.client, self._prompt_charge(request))
        others = self._fleet.candidates(POOL, allowed, now) & ~(1 << assignment.member.slot)
        fallbacks: list[str] = []
        while others and len(fallbacks) < FALLBACKS:
            slot = self._fleet.queues.least(others)
            others &= ~(1 << slot)
            fallbacks.append(self._fleet.at(slot).identity.address)
        pick = Pick(request, assignment.member, assignment.matched_tokens, fallbacks)
        misses, missing = self._misses.get(pick.endpoint), self._missing(request, pick.endpoint)
        if misses is not None and misses.is_long(missing):
            misses.enter(pick, request.client, missing, misses.part)
        return pick

    def placed_elsewhere(self, address: str, request: RouteRequest, cached_tokens: int, now: float) -> Pick | None:
        """Record a request that another process gave an endpoint; it ends like one that was placed here."""
        member = self._fleet.find(address)
        if member is None:
            return None
        pick = Pick(replace(request, model=POOL, digests=b""), member, cached_tokens, ())
        self._dispatcher.accepted(member, pick.request, now, cached_tokens)
        self._queue.charge(request.client, self._prompt_charge(request))
        self._changed(member)
        return pick

    def waits_outside_engine(self, address: str, requests: int) -> None:
        """Record how many `requests` that have entered wait outside of the engine: they take no room in it yet."""
        if (member := self._fleet.find(address)) is not None:
            self._outside_engine[address] = requests
            self._changed(member)

    def answered_by(self, pick: Pick, address: str, now: float) -> None:
        """Record that an answer begins, from the endpoint `address`; an unknown one counts as the one that was chosen.

        If the proxy had to take another endpoint, the booking moves there with its charge, and the first one rests.
        """
        request, member = pick.request, pick.member
        if address in self._blocks and address != member.identity.address:
            if self._fleet.is_current(member):
                self._rest(member, now)
            self._dispatcher.withdrawn(request.request_id, request.attempt)
            self._computed(pick)
            self._changed(member)
            member = pick.member = self._member(address)
            pick.is_moved = True
        self._dispatcher.accepted(member, request, now)
        self._changed(member)

    def completed(self, pick: Pick, output_tokens: int) -> None:
        """End a request that was answered: charge its output, and count its prompt among the blocks of its endpoint."""
        request, member = pick.request, pick.member
        self._dispatcher.ended(member, request.request_id, request.attempt, True, max(1, output_tokens))
        self._computed(pick)
        if self._fleet.is_current(member):
            blocks = self._blocks[member.identity.address]
            is_elsewhere = pick.is_moved and bool(request.digests) and isinstance(blocks, RecentBlocks)
            cached = [BlockRun(0, request.digests)] if is_elsewhere else []
            evicted = blocks.used(request.digests)
            self._dispatcher.progressed(member, cached, evicted)
            self._changed(member)
        cost = self._cost.decode(output_tokens, request.prompt_tokens, 0)
        self._queue.charge(request.client, charge(cost, request.weight))

    def rolled_back(self, pick: Pick) -> None:
        """End a request that was not computed, or cancelled before its answer began, and refund its charge."""
        request, member = pick.request, pick.member
        self._dispatcher.ended(member, request.request_id, request.attempt, False, 0)
        self._computed(pick)
        self._changed(member)
        self._queue.charge(request.client, -self._prompt_charge(request))

    def outstanding(self, address: str) -> int:
        return self._member(address).outstanding

    def check_invariants(self) -> None:
        self._dispatcher.check_invariants()
        self._queue.check_invariants()
        full = {address for address in self._blocks if self._is_full(self._member(address))}
        assert full == self._full, f"{full} are full, and {self._full} count as such"
        for address, misses in self._misses.items():
            misses.check_invariants([pick for pick in misses.long if pick.endpoint == address])
        for address, blocks in self._blocks.items():
            assert self._fleet.find(address) is not None, f"{address} is no member"
            most = math.inf if self.reports_blocks(address) else self._size.kv_tokens // self._size.block_tokens
            assert len(blocks) <= most, f"{address}: {len(blocks)} blocks"

    def _prompt_charge(self, request: RouteRequest) -> int:
        return charge(self._cost.extend(request.prompt_tokens, 0), request.weight)

    def _changed(self, member: Member) -> None:
        if self._fleet.is_current(member):
            change = self._full.add if self._is_full(member) else self._full.discard
            change(member.identity.address)

    def _computing(self, member: Member) -> int:
        return max(0, member.outstanding - self._outside_engine.get(member.identity.address, 0))

    def _is_full(self, member: Member) -> bool:
        requests, load = self._computing(member) + member.foreign_requests, member.load
        return requests >= self._size.running or (
            load.waiting > 0 and load.kv_tokens_used >= FULL_KV * self._size.kv_tokens
        )

    def _rest(self, member: Member, now: float) -> None:
        """Send no requests to a member for REST_SECONDS, unless there is no other."""
        self._dispatcher.reported(member, replace(member.load, draining=True), now)
        self._resting[member.identity.address] = now + REST_SECONDS

    def _rested(self, now: float) -> None:
        for address in [address for address, until in self._resting.items() if until <= now]:
            del self._resting[address]
            member = self._member(address)
            self._dispatcher.reported(member, replace(member.load, draining=False), now)

    def _member(self, address: str) -> Member:
        member = self._fleet.find(address)
        assert member is not None, f"{address} is no endpoint"
        return member

    def _identity(self, address: str) -> WorkerIdentity:
        size = self._size
        return WorkerIdentity(address, address, address, {POOL: ""}, size.block_tokens, size.kv_tokens, size.running)

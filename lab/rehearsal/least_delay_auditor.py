"""Check that the backlogs of least delay are those of the requests that are placed and have not ended, and that its
presence lemma holds (docs/fairness.md)."""

from dataclasses import dataclass

from global_scheduler.core.fleet import slots
from global_scheduler.core.policies import Candidates, RouteRequest
from global_scheduler.core.policies.least_delay import RECOMPUTE, LeastDelay
from serving.cost import WeightedTokens
from serving.names import tenant_of

COST = WeightedTokens()


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A request that was placed and has not ended; `booked` in micro-units."""

    client: str
    slot: int
    booked: int


class LeastDelayAuditor:
    """A wrapper of the policy (see RoutePolicy). A method raises AssertionError when a backlog differs from the sum of
    the bookings, a booking is less than what the prompt costs, or a client is sent where it has much work while another
    worker has none of it."""

    def __init__(self, policy: LeastDelay) -> None:
        self._policy = policy
        self._placed: dict[tuple[str, int], PlacedRequest] = {}  # by request and attempt
        self._most_weight = 0  # of all requests that were placed

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Check that a candidate is chosen, that choosing books nothing, and the presence lemma."""
        slot = self._policy.select(request, choice)
        assert choice.candidates >> slot & 1, f"{request} goes to slot {slot}, which is no candidate"
        self._check_presence(request, choice, slot)
        self._check()
        return slot

    def _check_presence(self, request: RouteRequest, choice: Candidates, slot: int) -> None:
        """Check the presence lemma before the request is booked; every other account may have the largest weight."""
        clients: dict[int, set[str]] = {each: set() for each in slots(choice.candidates)}
        for placed in self._placed.values():
            clients.get(placed.slot, set()).add(placed.client)
        tenant, heaviest = tenant_of(request.client), max(1.0, self._most_weight / request.weight)
        delayed = [0.0]  # at workers where the client has nothing: requests that would wait longer
        for each, present in clients.items():
            if request.client not in present:
                users = 1 + heaviest * sum(tenant_of(client) == tenant for client in present)
                tenants = 1 + heaviest * len(set(map(tenant_of, present)) - {tenant})
                delayed.append(1 + min(choice.queues.length(each), tenants * users))
        most = RECOMPUTE * COST.extend(request.prompt_tokens, 0) * max(delayed)
        _, work = self._policy.outstanding().get((request.client, slot), (0, 0))
        assert len(delayed) == 1 or work <= most, f"{request} goes to slot {slot} with {work} there, not {most} at most"

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Check the booking of the prompt that is not cached, and of some output."""
        booked = self._policy.placed(request, slot, candidates, matched_tokens)
        self._most_weight = max(self._most_weight, request.weight)
        prompt = COST.extend(max(0, request.prompt_tokens - matched_tokens), 0)
        assert booked >= prompt, f"{request} is booked for {booked}, its prompt costs {prompt}"
        self._placed[request.request_id, request.attempt] = PlacedRequest(request.client, slot, booked)
        self._check()
        return booked

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        """Check that exactly the prompt's work is released."""
        left = self._policy.computed(request, slot, booked, matched_tokens)
        prompt = COST.extend(max(0, request.prompt_tokens - matched_tokens), 0)
        assert left == booked - prompt, f"of {request} {left} is left of {booked}, its prompt costs {prompt}"
        self._placed[request.request_id, request.attempt] = PlacedRequest(request.client, slot, left)
        self._check()
        return left

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """Check that exactly the booking is released."""
        self._end(request, slot, booked)
        self._policy.ended(request, slot, booked, output_tokens)
        self._check()

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """Check that exactly the booking is released."""
        self._end(request, slot, booked)
        self._policy.refunded(request, slot, booked)
        self._check()

    def _end(self, request: RouteRequest, slot: int, booked: int) -> None:
        placed = self._placed.pop((request.request_id, request.attempt))
        ending = PlacedRequest(request.client, slot, booked)
        assert ending == placed, f"{request} ends as {ending}, it was placed as {placed}"

    def forget(self, slot: int) -> None:
        """Check that nothing is left of a lost worker."""
        self._placed = {key: placed for key, placed in self._placed.items() if placed.slot != slot}
        self._policy.forget(slot)
        self._check()

    def _check(self) -> None:
        due: dict[tuple[str, int], tuple[int, int]] = {}
        for placed in self._placed.values():
            requests, work = due.get((placed.client, placed.slot), (0, 0))
            due[placed.client, placed.slot] = requests + 1, work + placed.booked
        backlogs = self._policy.outstanding()
        assert backlogs == due, f"the backlogs are {backlogs}, due is {due}"

    def check_invariants(self) -> None:
        """See RoutePolicy."""
        self._policy.check_invariants()

"""Check that the backlogs of least delay are those of the requests that are placed and have not ended."""

from dataclasses import dataclass

from global_scheduler.core.policies import Candidates, RouteRequest
from global_scheduler.core.policies.least_delay import LeastDelay
from serving.cost import WeightedTokens

COST = WeightedTokens()


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A request that was placed and has not ended; `booked` in micro-units."""

    client: str
    slot: int
    booked: int


class LeastDelayAuditor:
    """A wrapper of the policy (see RoutePolicy). A method raises AssertionError when a backlog differs from the sum of
    the bookings, or a booking is less than what the prompt costs."""

    def __init__(self, policy: LeastDelay) -> None:
        self._policy = policy
        self._placed: dict[tuple[str, int], PlacedRequest] = {}  # by request and attempt

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Check that a candidate is chosen, and that choosing books nothing."""
        slot = self._policy.select(request, choice)
        assert choice.candidates >> slot & 1, f"{request} goes to slot {slot}, which is no candidate"
        self._check()
        return slot

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Check the booking of the prompt that is not cached, and of some output."""
        booked = self._policy.placed(request, slot, candidates, matched_tokens)
        prompt = COST.extend(max(0, request.prompt_tokens - matched_tokens), 0)
        assert booked >= prompt, f"{request} is booked for {booked}, its prompt costs {prompt}"
        self._placed[request.request_id, request.attempt] = PlacedRequest(request.client, slot, booked)
        self._check()
        return booked

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

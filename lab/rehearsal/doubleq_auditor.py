"""Check that DoubleQ's balances change as Algorithm 2 of the DLPM paper states, under any worker or call failure."""

from global_scheduler.core.policies import Candidates, RouteRequest
from global_scheduler.core.policies.doubleq import KEPT_TOKENS, DoubleQ
from serving.cost import MICRO, WeightedTokens, charge
from simulation.spec import ClusterSpec

COST = WeightedTokens()


class DoubleQAuditor:
    """A wrapper of the policy (see RoutePolicy). A method raises AssertionError when a balance differs from the due
    one."""

    def __init__(self, policy: DoubleQ, spec: ClusterSpec) -> None:
        self._policy = policy
        self._quantum = spec.route_quantum_tokens * MICRO

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Check lines 4 to 8: the request goes to a worker where its client has credit."""
        before = self._balances(request, choice.candidates)
        slot = self._policy.select(request, choice)
        had_credit = before[slot] > 0 or max(before.values()) <= 0
        assert had_credit, f"{request} goes to slot {slot} without credit: {before}"
        self._check_refilled(request, slot, before, charged=0)
        return slot

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Check lines 4 to 6 and line 16."""
        before = self._balances(request, candidates)
        booked = self._policy.placed(request, slot, candidates, matched_tokens)
        self._check_refilled(request, slot, before, charged=_input(request))
        return booked

    def _balances(self, request: RouteRequest, candidates: int) -> dict[int, int]:
        slots = [slot for slot in range(candidates.bit_length()) if candidates >> slot & 1]
        return {slot: self._balance(request, slot) for slot in slots}

    def _balance(self, request: RouteRequest, slot: int) -> int:
        return self._policy.balance(request.client, request.model, slot)

    def _check_refilled(self, request: RouteRequest, slot: int, before: dict[int, int], charged: int) -> None:
        refilled = self._balance(request, slot) + charged - before[slot]
        if max(before.values()) > 0:
            assert not refilled, f"{request}: {refilled} too much at slot {slot}, with {before}"
        assert refilled % self._quantum == 0, f"{request}: refilled by {refilled} at slot {slot}"

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        """See RoutePolicy: nothing changes."""
        return self._policy.computed(request, slot, booked, matched_tokens)

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """Check line 22: the output is charged."""
        due = self._balance(request, slot) - charge(
            COST.decode(output_tokens, request.prompt_tokens, 0), request.weight
        )
        self._policy.ended(request, slot, booked, output_tokens)
        self._check_balance(request, slot, due)

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """Check a refund: it returns the input's charge less a small fixed cost, and no balance exceeds the quantum."""
        kept = charge(COST.extend(min(KEPT_TOKENS, request.prompt_tokens), 0), request.weight)
        due = min(self._quantum, self._balance(request, slot) + _input(request) - kept)
        self._policy.refunded(request, slot, booked)
        self._check_balance(request, slot, due)

    def _check_balance(self, request: RouteRequest, slot: int, due: int) -> None:
        balance = self._balance(request, slot)
        assert balance == due, f"{request} ended at slot {slot}: the balance is {balance}, due is {due}"

    def forget(self, slot: int) -> None:
        """See RoutePolicy."""
        self._policy.forget(slot)

    def check_invariants(self) -> None:
        """See RoutePolicy."""
        self._policy.check_invariants()


def _input(request: RouteRequest) -> int:
    return charge(COST.extend(request.prompt_tokens, 0), request.weight)

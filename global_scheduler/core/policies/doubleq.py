"""DoubleQ: locality until a client's quantum at a worker is spent, then the shortest queue (DLPM Alg. 2).

Unit of fairness: with DLPM in the workers, service per client over the pool; two clients that are backlogged on every
worker differ by at most 2 |W| (U + Q^u) (Theorem 5.1). Q^w is no part of the bound: it trades locality for balance.
"""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.credit import Credit
from serving.bounded_client_map import BoundedClientMap
from serving.cost import MICRO, charge

# The charge of a request that never started: otherwise a client could use up its credit at a worker for free, by
# submitting and cancelling, and so move its other requests.
KEPT_TOKENS = 16


class DoubleQ:
    """DoubleQ with one account per client and model.

    Beyond `most_idle` accounts, the least recently used one is dropped. Its client then has a full quantum at every
    worker again, which changes where its requests go and gives it no extra service.

    Two misprints of SELECTWORKER are corrected after the text of section 5.2: replenish while *no* worker is
    available (line 5), and prefer the candidates with the longest match if any is available (line 8).
    Availability is tested over the request's candidates only, so that credit in another pool does not matter.

    As printed, clients that never spend a quantum stay at the worker that first computed a prefix that all share, and
    wait there while other workers are idle (lab/scaling.md). Here a request leaves the longest match when requests
    wait there and its queue exceeds 1.5 times the shortest queue among workers with credit. No bound changes, because
    none depends on where a client with credit goes. With `strict_paper` the request stays, as printed.
    """

    def __init__(self, config: RoutePolicyConfig) -> None:
        self._cost = config.cost
        self._credits: BoundedClientMap[tuple[str, str], Credit] = BoundedClientMap(config.most_idle)
        self._quantum = config.quantum_tokens * MICRO
        self._strict = config.strict_paper

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Return the slot that SELECTWORKER chooses, after the rounds of lines 5 and 6."""
        credit = self._credits.get((request.client, request.model))
        candidates = choice.candidates
        available = candidates if credit is None else credit.available(candidates)
        chosen = choice.queues.least(choice.longest & available or available)
        if not self._strict and (choice.waiting >> chosen & 1 or choice.queues.is_full(chosen)):
            shortest = choice.queues.least(available)
            chosen = shortest if choice.queues.outgrows(chosen, shortest) else chosen
        return chosen

    def _credit(self, request: RouteRequest) -> Credit:
        key = (request.client, request.model)
        credit = self._credits.get(key)
        if credit is None:
            credit = self._credits[key] = Credit(self._quantum)
        self._credits.rest(key)
        return credit

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Charge the whole prompt (line 16), after the rounds of lines 5 and 6; return the charge."""
        credit = self._credit(request)
        credit.available(candidates)
        # Only the worker knows which tokens are the system prompt.
        booked = charge(self._cost.extend(request.prompt_tokens, 0), request.weight)
        credit.charge(slot, booked)
        return booked

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        """Return all of it: a charge stays."""
        return booked

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """Charge the output tokens (line 22)."""
        credit = self._credits.get((request.client, request.model))
        if credit is not None:
            cost = self._cost.decode(output_tokens, request.prompt_tokens, 0)
            credit.charge(slot, charge(cost, request.weight))

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """Give back the input's charge except for the cost of KEPT_TOKENS."""
        credit = self._credits.get((request.client, request.model))
        if credit is not None:
            kept = charge(self._cost.extend(min(KEPT_TOKENS, request.prompt_tokens), 0), request.weight)
            credit.charge(slot, kept - booked)

    def forget(self, slot: int) -> None:
        """Drop all balances at `slot` before its reuse. O(clients); workers leave rarely."""
        for credit in self._credits.values():
            credit.forget(slot)

    def balance(self, client: str, model: str, slot: int) -> int:
        """Return `q_{i,w}` in micro-units, which is a full quantum before the client's first request there."""
        credit = self._credits.get((client, model))
        return self._quantum if credit is None else credit.balance(slot)

    def check_invariants(self) -> None:
        self._credits.check_invariants()
        for credit in self._credits.values():
            credit.check_invariants()

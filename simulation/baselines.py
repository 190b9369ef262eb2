"""Baseline policies of the literature that no service offers. The simulator compares with them."""

from collections.abc import Callable, Mapping

from global_scheduler.core.fleet import slots
from global_scheduler.core.policies import RoutePolicy, RoutePolicyConfig
from global_scheduler.core.policies.base import Candidates, RouteRequest
from global_scheduler.core.policies.stateless import StatelessPolicy
from local_worker.core.policies import QueuePolicy, QueuePolicyConfig, StepBudget
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.vtc import Vtc
from local_worker.core.policies.vtc_predict import VtcOracle
from local_worker.core.request import Request


class Lcf(Vtc):
    """Least Counter First: VTC whose counters are not lifted (VTC section 5.1).

    Unit of fairness: total service received per client. Bound: none. A client that returns after a pause has a low
    counter, and takes the whole worker until it has caught up.
    """

    @property
    def bound_micro(self) -> None:
        """Always None, since this policy has no bound."""

    def _lifted_counter(self, client: str) -> int:
        return self._counter(client)


class Lpm(Fcfs):
    """Longest prefix match (DLPM section 4.1, as in SGLang): the request with the most cached prompt tokens goes first.

    Ties are broken by arrival, and requests that do not fit are skipped. Unit of fairness: none. Locality is best, but
    a client without cached prefixes can starve. Bound: none. See QueuePolicy.
    """

    def select(self, budget: StepBudget) -> list[Request]:
        order = sorted(self._queue, key=lambda request: (-budget.matched_tokens(request), request.arrival))
        admitted = [request for request in order if budget.admit(request) is not None]
        for request in admitted:
            del self._queue[request]
        return admitted


class Lmetric(StatelessPolicy):
    """LMetric (OSDI 2026): the least product of the request's new prompt tokens, which the worker does not cache, and
    the requests outstanding there.

    Of equal products the one with fewer new tokens is chosen, then the shortest queue. The policy has no parameter.
    Unit of fairness: none. See RoutePolicy.
    """

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        scores: dict[tuple[int, int], int] = {}  # workers by product and new tokens
        for slot in slots(choice.candidates):
            new = request.prompt_tokens - choice.tokens_at(slot)
            score = new * choice.queues.length(slot), new
            scores[score] = scores.get(score, 0) | 1 << slot
        return choice.queues.least(scores[min(scores)])


class Preble(StatelessPolicy):
    """Preble, as far as the DLPM paper describes it (section 6.1): the least loaded of the workers with the longest
    match if this exceeds half of the prompt, or else of all workers.

    Rebalancing: a match whose queue, per capacity, is more than 1.5 times the shortest one with this request in it is
    skipped for the shortest. Unit of fairness: none. See RoutePolicy.
    """

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        queues = choice.queues
        shortest = queues.least(choice.candidates)
        if 2 * choice.longest_tokens <= request.prompt_tokens:
            return shortest
        match = queues.least(choice.longest)
        return shortest if queues.outgrows(match, shortest) else match


QUEUE_BASELINES: Mapping[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {
    "lcf": Lcf,
    "lpm": Lpm,
    "vtc-oracle": VtcOracle,
}
ROUTE_BASELINES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {"preble": Preble, "lmetric": Lmetric}

"""Round robin: each pool's workers in turn, whatever they hold; SGLang's default (DLPM section 6.1). Unit of fairness:
none."""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless_policy import StatelessPolicy


class RoundRobin(StatelessPolicy):
    """Choose the next slot after the model's last one, cyclically."""

    def __init__(self, _config: RoutePolicyConfig) -> None:
        self._last: dict[str, int] = {}

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See RoutePolicy."""
        return following(choice.candidates, self._last.get(request.model))

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """See RoutePolicy."""
        self._last[request.model] = slot
        return 0


def following(workers: int, last: int | None) -> int:
    """Return the slot after `last` in a bitmask, cyclically, or the lowest slot if `last` is None."""
    later = 0 if last is None else workers >> (last + 1) << (last + 1)
    chosen = later or workers
    return (chosen & -chosen).bit_length() - 1

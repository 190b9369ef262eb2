"""Round robin: each pool's workers in turn, whatever they hold; SGLang's default (DLPM section 6.1). Unit of fairness:
none."""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless_policy import StatelessPolicy


class RoundRobin(StatelessPolicy):
    """The next slot after the model's last one, cyclically."""

    def __init__(self, _config: RoutePolicyConfig) -> None:
        self._last: dict[str, int] = {}

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See Policy."""
        chosen = self._last[request.model] = following(choice.candidates, self._last.get(request.model))
        return chosen

    def follow(self, request: RouteRequest, slot: int, candidates: int) -> None:
        """See Policy."""
        self._last[request.model] = slot


def following(workers: int, last: int | None) -> int:
    """The slot after `last` in a mask, cyclically; the lowest when there is no last one."""
    later = 0 if last is None else workers >> (last + 1) << (last + 1)
    chosen = later or workers
    return (chosen & -chosen).bit_length() - 1

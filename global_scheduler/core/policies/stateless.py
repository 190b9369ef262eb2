"""Policies without accounts: the usual ways to balance load, whatever workers hold. Unit of fairness: none."""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest


class StatelessPolicy:
    """A policy that keeps no accounts: it books nothing, and its events change nothing. See RoutePolicy."""

    def __init__(self, _config: RoutePolicyConfig) -> None:
        pass

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Return 0, because nothing is booked; see RoutePolicy."""
        return 0

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        return booked

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """See RoutePolicy."""

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """See RoutePolicy."""

    def forget(self, slot: int) -> None:
        """See RoutePolicy."""

    def check_invariants(self) -> None:
        """See RoutePolicy."""


class LeastLoaded(StatelessPolicy):
    """Choose `argmin s_w / capacity` over all candidates. See RoutePolicy."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        return choice.queues.least(choice.candidates)


class RoundRobin(StatelessPolicy):
    """Choose the next slot after the model's last one, cyclically; SGLang's default (DLPM section 6.1)."""

    def __init__(self, _config: RoutePolicyConfig) -> None:
        self._last: dict[str, int] = {}

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        return following(choice.candidates, self._last.get(request.model))

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        self._last[request.model] = slot
        return 0


def following(workers: int, last: int | None) -> int:
    """Return the slot after `last` in a bitmask, cyclically, or the lowest slot if `last` is None."""
    later = 0 if last is None else workers >> (last + 1) << (last + 1)
    chosen = later or workers
    return (chosen & -chosen).bit_length() - 1

"""Round robin: each pool's workers in turn, whatever they hold."""

from collections.abc import Sequence

from global_scheduler.core.fleet import Member
from global_scheduler.core.policies.base import PolicyConfig, Request
from global_scheduler.core.policies.stateless import WithoutAccounts


class RoundRobin(WithoutAccounts):
    """The next slot after the model's last one, cyclically."""

    def __init__(self, _config: PolicyConfig) -> None:
        self._last: dict[str, int] = {}

    def select(self, request: Request, candidates: Sequence[Member], longest: int) -> Member:
        """See Policy."""
        last = self._last.get(request.model, -1)
        chosen = next((m for m in candidates if m.slot > last), candidates[0])
        self._last[request.model] = chosen.slot
        return chosen

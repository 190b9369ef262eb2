"""The claims of interactions on the memory of each model's pool, at this gateway and at those that share with it."""

from collections.abc import Mapping, Sequence
from itertools import chain

from throttler.core.habits import Habits
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.working_sets import ClaimsView, WorkingSets

EXCHANGE_SECONDS = 1.0


class PoolClaims:
    """The working sets by model. What other gateways count is replaced every EXCHANGE_SECONDS."""

    def __init__(self) -> None:
        self._habits = Habits()
        self._gateways = 1
        self._sets: dict[str, WorkingSets] = {}

    def of(self, model: str) -> WorkingSets:
        """Return the claims on the pool of `model`."""
        found = self._sets.get(model)
        if found is None:
            found = self._sets[model] = WorkingSets(self._habits, self._gateways)
        return found

    def closed(self, key: InteractionKey) -> None:
        """Drop the claims of an interaction that has closed."""
        for sets in self._sets.values():
            sets.closed(key)

    def view(self, now: float) -> dict[str, ClaimsView]:
        """Return what other gateways are told, by model."""
        return {model: sets.view(now) for model, sets in self._sets.items()}

    def replace_remote(self, views: Sequence[Mapping[str, ClaimsView]], now: float) -> None:
        """Replace what other gateways told by `views`, one of each."""
        self._gateways = 1 + len(views)
        for model in dict.fromkeys(chain(self._sets, *views)):
            self.of(model).replace_remote([view.get(model, ClaimsView([], [])) for view in views], now)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when claims and sums contradict each other."""
        for sets in self._sets.values():
            sets.check_invariants()

"""The service over weight that each tenant, user and interaction has received, and the gaps between siblings.

This is the service of the theorems: the cost of computed and generated tokens, of forfeited charges and of room beyond
a share, over the weight at the level of the account. It is counted apart from the policy's own accounts.
"""

from dataclasses import dataclass

from local_worker.core.fairness_levels import FairnessLevel, FairnessLevels
from local_worker.core.live_gap import LiveGap
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap
from serving.cost import charge

Path = tuple[str, ...]


@dataclass(slots=True)
class ShareAccount:
    """The service over weight of one account in micro-units, and its numbers of waiting and of all open requests."""

    path: Path
    weighted: int = 0
    waiting: int = 0
    open: int = 0


class ShareLedger:
    """The accounts of all levels, and at each level the gap between a few siblings that stay backlogged.

    Of the accounts of a level without requests only the `most_idle` that became idle last are kept.
    """

    def __init__(self, levels: FairnessLevels, most_idle: int = MOST_IDLE) -> None:
        self._levels = levels
        self._kept: list[BoundedClientMap[Path, ShareAccount]] = [BoundedClientMap(most_idle) for _ in levels.levels]
        self._gaps = [LiveGap[Path]() for _ in levels.levels]
        self._watched: list[Path] = [() for _ in levels.levels]  # by level: the parent of the siblings in its gap
        self._of: dict[Request, tuple[ShareAccount, ...]] = {}  # open request -> its accounts, the highest first

    @property
    def worst_gap(self) -> int:
        """The largest gap that was observed between two siblings of any level, in micro-units; see LiveGap."""
        return max(gap.worst for gap in self._gaps)

    @property
    def worst_gaps(self) -> list[tuple[FairnessLevel, int]]:
        """The largest gap that was observed between two siblings of each level, in micro-units, the highest first."""
        return [(level, gap.worst) for level, gap in zip(self._levels.levels, self._gaps, strict=True)]

    def accounts(self, level: int) -> tuple[ShareAccount, ...]:
        """Return the accounts of a level; 0 is the highest."""
        return tuple(self._kept[level].values())

    def arrived(self, request: Request) -> None:
        """Record that a new `request` waits."""
        path = self._levels.path(request)
        self._of[request] = tuple(self._open(path[: level + 1]) for level in range(len(path)))
        for account, gap in zip(self._of[request], self._gaps, strict=True):
            account.waiting += 1
            account.open += 1
            level = len(account.path) - 1
            if gap.is_idle:
                self._watched[level] = account.path[:-1]
            if self._watched[level] == account.path[:-1]:
                gap.watch(account.path)

    def _open(self, path: Path) -> ShareAccount:
        kept = self._kept[len(path) - 1]
        account = kept.get(path)
        if account is None:
            account = kept[path] = ShareAccount(path)
        kept.activate(path)
        return account

    def entered(self, request: Request) -> None:
        """Record that `request` has entered the running batch."""
        for account in self._of[request]:
            account.waiting -= 1

    def preempted(self, request: Request) -> None:
        """Record that `request` left the batch and waits for its turn again."""
        for account in self._of[request]:
            account.waiting += 1

    def charged(self, request: Request, micro: int) -> None:
        """Count `micro` micro-units, not divided by a weight, for every account of `request`."""
        weight = request.weight
        for account in self._of[request]:
            account.weighted += charge(micro, weight)
            weight = request.user_weight

    def ended(self, request: Request) -> None:
        """Record that `request`, which neither waits nor runs, has ended."""
        for account in self._of.pop(request):
            account.open -= 1
            if not account.open:
                self._kept[len(account.path) - 1].rest(account.path)

    def observe(self) -> None:
        """Measure the gaps; to be called once per step."""
        for gap in self._gaps:
            gap.observe(self._backlogged)

    def _backlogged(self, path: Path) -> int | None:
        account = self._kept[len(path) - 1].get(path)
        return account.weighted if account is not None and account.waiting else None

"""Longest queue drop: the choice of the waiting request that is dropped when the queue is full.

The choice follows the worker's levels of fairness: of the tenants the one with the longest queue, of its users the one
with the longest queue, and so on. Requests that continue an interaction, and requests with output from an earlier
attempt, are never dropped.
"""

from collections.abc import Iterator
from itertools import chain

from local_worker.core.fairness_levels import FLAT, FairnessLevels
from local_worker.core.request import Request

Path = tuple[str, ...]


class LongestQueueDrop:
    """Waiting requests by account, and among siblings the one with the longest queue; all operations take constant
    time."""

    def __init__(self, levels: FairnessLevels = FLAT) -> None:
        self._levels = levels
        self._siblings: dict[Path, _Siblings] = {}  # by the path of their parent
        self._queues: dict[Path, dict[Request, None]] = {}

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests that may be dropped, account by account."""
        return chain.from_iterable(self._queues.values())

    def request_to_drop_for(self, request: Request) -> Request | None:
        """Return the request to drop so that `request` can be queued: the newest of the longest queue.

        At the highest level where another account has a longer queue than the account of `request`, the longest queue
        is that account's, and within it again the longest at each level below. Return None if there is no such level,
        or if no request may be dropped. The own queues count as empty for a request that itself is never dropped. With
        a limit on the whole queue alone, one client's flood would drop all others before a policy could be fair.
        """
        path: Path = ()
        is_own = True  # whether the chosen accounts are those of `request`
        for name in self._levels.path(request):
            siblings = self._siblings.get(path)
            if siblings is None:
                return None
            own = 0 if is_exempt(request) else siblings.lengths.get(name, 0)
            is_own = is_own and siblings.longest == own
            path = (*path, name if is_own else siblings.first_of_longest())
        return None if is_own else next(reversed(self._queues[path]))

    def add(self, request: Request) -> None:
        """Add a waiting `request`; do nothing if it must never be dropped."""
        if is_exempt(request):
            return
        path = self._levels.path(request)
        self._queues.setdefault(path, {})[request] = None
        for end, name in enumerate(path):
            siblings = self._siblings.get(path[:end])
            if siblings is None:
                siblings = self._siblings[path[:end]] = _Siblings()
            siblings.change(name, 1)

    def discard(self, request: Request) -> None:
        """Remove `request`, if it is held here."""
        path = self._levels.path(request)
        queue = self._queues.get(path, {})
        if request not in queue:
            return
        del queue[request]
        if not queue:
            del self._queues[path]
        for end, name in enumerate(path):
            siblings = self._siblings[path[:end]]
            siblings.change(name, -1)
            if not siblings.longest:
                del self._siblings[path[:end]]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the lengths at all levels agree with the queues."""
        lengths: dict[Path, dict[str, int]] = {}
        for path, queue in self._queues.items():
            for end, name in enumerate(path):
                group = lengths.setdefault(path[:end], {})
                group[name] = group.get(name, 0) + len(queue)
        counted = {path: siblings.lengths for path, siblings in self._siblings.items()}
        assert lengths == counted, f"queues {lengths}, counted {counted}"
        for siblings in self._siblings.values():
            siblings.check_invariants()


class _Siblings:
    """The lengths of the queues of siblings, and the longest of them."""

    def __init__(self) -> None:
        self.lengths: dict[str, int] = {}
        self.longest = 0
        self._by_length: dict[int, dict[str, None]] = {}  # length -> names with it, in the order of reaching it

    def first_of_longest(self) -> str:
        """Return the sibling that has had the greatest length for longest."""
        return next(iter(self._by_length[self.longest]))

    def change(self, name: str, by: int) -> None:
        """Lengthen the queue of `name` by one, or shorten it by one: `by` is 1 or -1."""
        old = self.lengths.pop(name, 0)
        if old:
            del self._by_length[old][name]
            if not self._by_length[old]:
                del self._by_length[old]
        new = old + by
        if new:
            self.lengths[name] = new
            self._by_length.setdefault(new, {})[name] = None
        if new > self.longest or self.longest not in self._by_length:
            self.longest = new

    def check_invariants(self) -> None:
        """Raise AssertionError unless the index by length agrees with the lengths."""
        indexed = {name: length for length, names in self._by_length.items() for name in names}
        assert indexed == self.lengths, f"lengths {self.lengths}, indexed {indexed}"
        assert self.longest == max(self.lengths.values(), default=0), f"longest {self.longest} of {self.lengths}"


def is_exempt(request: Request) -> bool:
    """Return whether `request` is never dropped for another one."""
    return request.in_interaction or request.seed_position > 0

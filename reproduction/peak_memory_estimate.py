"""How full memory will ever be, as S-LoRA estimates it before it lets a request enter.

Requests end in order of what they have left, and memory is fullest just before one of them ends: with the k that have
most left still there, it holds their tokens and, for each of them, what the one that ends next has left.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate

Size = tuple[int, int]  # tokens that a request has still to make after its next one, tokens that it holds then


class PeakMemoryEstimate:
    """Of a running batch, with the clients in it. One more request is placed in O(log n)."""

    def __init__(self, sizes: Iterable[Size], clients: Collection[str]) -> None:
        ordered = sorted(sizes, reverse=True)
        self.clients = clients
        self._lefts = [-left for left, _ in ordered]
        self._held = list(accumulate((tokens for _, tokens in ordered), initial=0))
        alone = [self._held[k] + k * left for k, (left, _) in enumerate(ordered, start=1)]
        joined = [self._held[k] + (k + 1) * left for k, (left, _) in enumerate(ordered, start=1)]
        # The greatest among the first k, and among all but the first k.
        self._before = list(accumulate(alone, max, initial=0))
        self._after = list(accumulate(reversed(joined), max, initial=0))[::-1]

    def most(self, entering: Size, steps: int) -> int:
        """Tokens at the fullest, if `entering` comes after so many steps, before any of the batch has ended.

        Until then everybody holds a token more with each step and has one less left: those who have more left than the
        newcomer are as if alone, and the others, with the newcomer's tokens on top, are a step further for it.
        """
        left, tokens = entering
        longer = bisect_left(self._lefts, -(left + steps))
        own = self._held[longer] + longer * steps + tokens + (longer + 1) * left
        rest = self._after[longer] + tokens - steps if longer < len(self._lefts) else 0
        return max(self._before[longer], own, rest)

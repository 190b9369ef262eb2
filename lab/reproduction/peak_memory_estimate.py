"""S-LoRA's estimate of the peak memory of a batch, which decides whether a request may enter.

Requests end in order of their remaining tokens, and memory peaks just before one of them ends. With the k requests that
have most tokens left, the batch then holds their tokens, plus for each of them the remaining tokens of the request that
ends next.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate

Size = tuple[int, int]  # tokens left after its next one, and tokens held then


class PeakMemoryEstimate:
    """The estimate for a running batch with the given clients. Adding one request takes O(log n)."""

    def __init__(self, sizes: Iterable[Size], clients: Collection[str]) -> None:
        ordered = sorted(sizes, reverse=True)
        self.clients = clients
        self._lefts = [-left for left, _ in ordered]
        self._held = list(accumulate((tokens for _, tokens in ordered), initial=0))
        alone = [self._held[k] + k * left for k, (left, _) in enumerate(ordered, start=1)]
        joined = [self._held[k] + (k + 1) * left for k, (left, _) in enumerate(ordered, start=1)]
        # The maximum of the first k values, and of all but the first k.
        self._before = list(accumulate(alone, max, initial=0))
        self._after = list(accumulate(reversed(joined), max, initial=0))[::-1]

    def most(self, entering: Size, steps: int) -> int:
        """Return the peak in tokens if `entering` enters after `steps` steps, before any request of the batch has
        ended.

        Until then each request gains one held token per step and loses one remaining token. Requests with more tokens
        left than the entering one peak as without it. For the others, the entering request adds its own tokens, and its
        step adds one.
        """
        left, tokens = entering
        longer = bisect_left(self._lefts, -(left + steps))
        own = self._held[longer] + longer * steps + tokens + (longer + 1) * left
        rest = self._after[longer] + tokens - steps if longer < len(self._lefts) else 0
        return max(self._before[longer], own, rest)

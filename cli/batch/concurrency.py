"""How many calls of a batch are open: more while all is well, half as many after a refusal, none while told to wait.

The calls are of the background class, so that they take nothing from others; open calls still take places at the
gateway, and a gateway that is out of them says when there will be more.
"""

LEAST, FIRST, MOST = 1, 8, 256  # open calls


class Concurrency:
    """The limit on open calls; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self.open = 0
        self._limit = float(FIRST)
        self._resumes_at = self._lowered_at = float("-inf")

    @property
    def limit(self) -> int:
        """The largest number of open calls."""
        return int(self._limit)

    def wait(self, now: float) -> float | None:
        """Return the seconds until a call may begin, 0 if it may now; None: after another one has ended."""
        if self.open >= self.limit:
            return None
        return max(0.0, self._resumes_at - now)

    def began(self) -> None:
        self.open += 1

    def succeeded(self) -> None:
        """Record that a call was answered: the limit grows by 1 for each limit's worth of answers."""
        self.open -= 1
        self._limit = min(MOST, self._limit + 1 / self._limit)

    def failed(self) -> None:
        """Record that a call ended without an answer, which says nothing about how many may be open."""
        self.open -= 1

    def refused(self, began_at: float, retry_after: float, now: float) -> None:
        """Record that a call which began at `began_at` was refused, and is to be repeated in `retry_after` seconds.

        The limit is halved once for all calls that were open then.
        """
        self.open -= 1
        self._resumes_at = max(self._resumes_at, now + retry_after)
        if began_at > self._lowered_at:
            self._limit = max(LEAST, self._limit / 2)
            self._lowered_at = now

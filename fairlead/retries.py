"""The rule that decides whether and when a refused call is repeated."""

import random
from dataclasses import dataclass

from fairlead.errors import FairleadError, Retryable


@dataclass(frozen=True, slots=True)
class Retries:
    """The rule for repeating a refused call: at most `attempts` more calls after the first.

    The wait is the time that the service requested (RetryInfo) plus a random part, so that clients which are refused
    together do not return together.
    """

    attempts: int = 3
    longest: float = 60.0  # seconds; the call fails if the wait would be longer, and the application decides
    jitter: float = 0.2  # largest random addition, as a part of the wait

    def wait(self, error: FairleadError, retried: int, left: float | None) -> float | None:
        """Return the seconds to wait after `error`, or None if the call should fail.

        `retried` is the number of retries so far, `left` the number of seconds until the deadline.
        """
        if not isinstance(error, Retryable) or retried >= self.attempts:
            return None
        wait = error.retry_after * (1 + random.uniform(0, self.jitter))
        if wait > self.longest or (left is not None and wait >= left):
            return None
        return wait

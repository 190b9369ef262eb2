"""When and how long to wait before a refused call is made again."""

import random
from dataclasses import dataclass

from fairlead.errors import FairleadError, Retryable


@dataclass(frozen=True, slots=True)
class Retries:
    """At most `attempts` more calls after the first. Waits are what the service asked for (RetryInfo), and a little
    more at random, so that clients refused together do not return together."""

    attempts: int = 3
    longest: float = 60.0  # seconds; a longer wait is the application's to decide
    jitter: float = 0.2  # of the wait

    def wait(self, error: FairleadError, retried: int, left: float | None) -> float | None:
        """Seconds to wait after `error`, or None when the call should fail; `left`: seconds until its deadline."""
        if not isinstance(error, Retryable) or retried >= self.attempts:
            return None
        wait = error.retry_after * (1 + random.uniform(0, self.jitter))
        if wait > self.longest or (left is not None and wait >= left):
            return None
        return wait

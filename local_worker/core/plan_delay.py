"""When the next step is planned where the engine runs ahead: shortly before the one in flight ends.

Who comes before that is in the next step. But the end is only expected, and a device that waits for the host loses
more than a newcomer gains. Worse, such a step seems to last until the host came, so that a false expectation would
confirm itself. So the part of the expected time that the host lets pass grows slowly, falls to 0 as soon as a step had
ended before the next one was launched, and nothing is learned from that step.
"""

PLAN_SECONDS = 0.01  # that the host needs at most, in most cases
MOST = 0.9  # of the expected time
GROWTH = 0.05  # of that part, after each step that had not ended
ENDED_SECONDS = 0.001  # a step that ends sooner after the launch of the next one had ended before it


class PlanDelay:
    """The part of a step's expected time that passes before the next step is planned."""

    def __init__(self) -> None:
        self._part = 0.0
        self._is_delayed = False

    def seconds(self, expected: float) -> float:
        """Return how long after the begin of a step, which is expected to last so many seconds, the next one is
        planned; at most 0: at once."""
        delay = self._part * expected - PLAN_SECONDS
        self._is_delayed = delay > 0
        return delay

    def ended(self, waited: float) -> bool:
        """Record that the host waited so many seconds for the end of the step after it had launched the next one;
        return whether the step's time is known: the host did not miss its end."""
        is_missed = self._is_delayed and waited < ENDED_SECONDS
        self._part = 0.0 if is_missed else min(MOST, self._part + GROWTH)
        self._is_delayed = False
        return not is_missed

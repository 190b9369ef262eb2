"""When a model's pool counts as overloaded."""

from collections.abc import Sequence

from global_scheduler.core.fleet import Member

ENTER = 0.9
LEAVE = 0.8
FRESH_SECONDS = 4.0  # two reports, and a second for each in which it may be late
QUEUE_SECONDS = 1.0


class Overload:
    """One pool's overload, with hysteresis: the worst tenth of its workers decides, not their mean.

    A worker whose last report is older than FRESH_SECONDS is unknown, which counts as not overloaded.
    """

    def __init__(self) -> None:
        self._overloaded = False

    def update(self, members: Sequence[Member], now: float) -> bool:
        """Return whether the pool made of `members` is overloaded at `now`, in seconds."""
        pressed = self._stays_pressed if self._overloaded else self._is_pressed
        count = sum(now - m.reported_at <= FRESH_SECONDS and pressed(m) for m in members)
        self._overloaded = count >= max(1, -(-len(members) // 10))
        return self._overloaded

    def _is_pressed(self, member: Member) -> bool:
        load, identity = member.load, member.identity
        if load.queue_seconds >= QUEUE_SECONDS:
            return True
        if not load.waiting:
            return False
        return load.kv_tokens_used >= ENTER * identity.kv_tokens or load.running >= identity.max_running

    def _stays_pressed(self, member: Member) -> bool:
        """Return whether the pressure lasts, without regard to waiting requests: a queue may be empty for a moment."""
        load, identity = member.load, member.identity
        return (
            load.kv_tokens_used >= LEAVE * identity.kv_tokens
            or load.running >= LEAVE * identity.max_running
            or load.queue_seconds >= LEAVE * QUEUE_SECONDS
        )

"""Interactions in progress: several calls that serve one purpose of a user (FairServe section 4.2).

An interaction opens with its first admitted call. It closes on the call that is declared the last, after `idle_ttl`, at
`max_age`, after its app's `max_calls`, or when its client opens more interactions than it may. Its clocks stop while a
call is in flight: `opened` moves forward by this time. A gateway that did not open an interaction recognizes it by its
token; a token that is forged, or of another client, app, id or cluster, is ignored. Times are seconds of a monotonic
clock. Times in tokens are Unix seconds, because gateways compare them.

A token can be replayed at gateways where its interaction has not closed. This gains protected calls, whose number per
client and window is capped over all gateways (`throttler.core.oit`).
"""

import enum
import heapq
from dataclasses import dataclass
from itertools import count

from throttler.core.closed_interactions import ClosedInteractions
from throttler.core.interaction_tokens import InteractionKey, TokenClaim, TokenSigner, to_microsecond
from throttler.core.profiles import Profiles


class Close(enum.Enum):
    """The reason why an interaction closed."""

    END = "end"  # the caller ended it
    IDLE = "idle"
    AGE = "age"
    CALLS = "calls"
    CROWDED = "crowded"  # its client opened more interactions than it may


@dataclass(slots=True, eq=False)
class InteractionState:
    """The state of an open interaction; only Interactions changes it."""

    key: InteractionKey
    opened: float  # moves forward with the time spent in flight
    calls: int = 0  # admitted calls at all gateways, which is the stage of the next call
    withdrawn: int = 0  # withdrawn calls among `calls`
    in_flight: int = 0
    active: float = 0.0  # when `in_flight` last became zero, or one
    ending: bool = False  # the caller ended it while other calls were in flight


@dataclass(frozen=True, slots=True)
class FinishedInteraction:
    """An interaction that has closed, with its number of calls and the reason."""

    key: InteractionKey
    calls: int
    reason: Close


class Interactions:
    """The open interactions at this gateway; `secret` is the cluster's, `accepted_secret` one that is accepted too."""

    def __init__(self, secret: str, profiles: Profiles, accepted_secret: str = "") -> None:
        self._signer = TokenSigner(secret, accepted_secret)
        self._profiles = profiles
        self._busy: dict[InteractionKey, InteractionState] = {}
        self._idle: dict[str, dict[InteractionKey, InteractionState]] = {}  # by client, longest idle first
        self._deadlines: list[tuple[float, int, InteractionState]] = []  # a heap; some entries are no longer idle
        self._numbers = count()
        self._unreported: list[FinishedInteraction] = []  # closed by a call since the last `expired`
        self._closures = ClosedInteractions()
        self._unix_offset = 0.0  # Unix time minus `now`

    def configure(self, profiles: Profiles) -> None:
        """Apply new limits from now on."""
        self._profiles = profiles

    def synchronize(self, unix_offset: float) -> None:
        """Set the offset of Unix time: Unix time is `now + unix_offset`, in seconds; open interactions stay."""
        self._unix_offset = unix_offset

    def continues(self, key: InteractionKey, token: bytes, now: float) -> bool:
        """Return whether a call that arrives now continues an interaction in progress; change nothing."""
        busy, idle = self._busy.get(key), self._idle.get(key.client, {}).get(key)
        if busy is not None:
            return not busy.ending and self._over(busy, now) is None
        if idle is not None and self._over(idle, now) is None:
            return True
        claim = self._claim(key, token, now)
        return claim is not None and (idle is None or claim.stage > idle.calls)  # closed here, but continued elsewhere

    def next_stage(self, key: InteractionKey, token: bytes, now: float) -> int:
        """Return the stage that a call would have if it were admitted now; change nothing."""
        found = self._busy.get(key) or self._idle.get(key.client, {}).get(key)
        claim = self._claim(key, token, now)
        return max(found.calls if found is not None else 0, claim.stage if claim is not None else 0)

    def admitted(self, key: InteractionKey, token: bytes, now: float) -> int:
        """Open or continue the interaction of an admitted call; return the call's stage, 0 for the first call."""
        found = self._busy.get(key) or self._resume(key, now) or self._open(key, token, now)
        claim = self._claim(key, token, now)
        if claim is not None:  # other gateways may have admitted calls meanwhile
            found.calls = max(found.calls, claim.stage)
        if not found.in_flight:
            found.active = now
        found.in_flight += 1
        found.calls += 1
        self._busy[key] = found
        return found.calls - 1

    def token(self, key: InteractionKey) -> bytes:
        """Return the token for the next call of an interaction; raise KeyError unless a call of it is in flight."""
        found = self._busy[key]
        return self._signer.sign(key, TokenClaim(found.opened + self._unix_offset, found.calls))

    def finished(self, key: InteractionKey, *, end: bool, now: float) -> FinishedInteraction | None:
        """Record the end of an admitted call; return its interaction if it closes. `end` declares the last call.

        Raise KeyError for a call that was not admitted.
        """
        found = self._busy[key]
        found.ending = found.ending or end
        return self._left(found, now)

    def withdrawn(self, key: InteractionKey, stage: int, now: float) -> FinishedInteraction | None:
        """Record that an admitted call was refused later and does not count as a call of its interaction.

        An interaction without other calls never opened. Return the interaction if it closes. Raise KeyError for a call
        that was not admitted.
        """
        found = self._busy[key]
        if stage == found.calls - 1:
            found.calls = stage
        else:  # a later call or its token already has the next stage
            found.withdrawn += 1
        return self._left(found, now)

    def ended(self, key: InteractionKey, token: bytes, now: float) -> FinishedInteraction | None:
        """End an interaction on the caller's request; return it if it closes now.

        With calls in flight it closes with the last of them. An unknown interaction is ignored.
        """
        busy = self._busy.get(key)
        if busy is not None:
            busy.ending = True
            return None
        if not self.continues(key, token, now):
            return None
        return self._close(self._resume(key, now) or self._open(key, token, now), Close.END, now)

    def expired(self, now: float) -> list[FinishedInteraction]:
        """Close and return the expired interactions; to be called every few seconds."""
        self._closures.forget(now)
        while self._deadlines and (self._deadlines[0][0] <= now or not self._is_idle(self._deadlines[0][2])):
            _, _, found = heapq.heappop(self._deadlines)
            if self._is_idle(found) and (reason := self._over(found, now)) is not None:
                self._wake(found.key)
                self._unreported.append(self._close(found, reason, now))
        closed, self._unreported = self._unreported, []
        return closed

    @property
    def in_flight(self) -> int:
        """The number of open interactions with at least one call in flight."""
        return len(self._busy)

    @property
    def idle(self) -> int:
        """The number of open interactions without a call in flight, those that expire next included."""
        return sum(map(len, self._idle.values()))

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the records contradict each other."""
        due = {found for _, _, found in self._deadlines}  # never iterated: its order is not deterministic
        for client, idle in self._idle.items():
            assert 0 < len(idle) <= self._profiles.limits.max_interactions, f"{client}: {len(idle)} idle interactions"
            for key, found in idle.items():
                assert not found.in_flight, f"{key}: idle with {found.in_flight} calls in flight"
                assert key not in self._busy, f"{key}: both idle and busy"
                assert found in due, f"{key}: would stay open for ever"
        for key, found in self._busy.items():
            calls = found.calls - found.withdrawn
            assert 0 < found.in_flight <= calls, f"{key}: {found.in_flight} of {calls} calls in flight"
        self._closures.check_invariants()

    def _left(self, found: InteractionState, now: float) -> FinishedInteraction | None:
        """Count a call in flight down; return its interaction if it closes."""
        found.in_flight -= 1
        if found.in_flight:
            return None
        del self._busy[found.key]
        if found.calls == found.withdrawn:
            return None
        found.opened += now - found.active
        found.active = now
        if found.ending:
            return self._close(found, Close.END, now)
        if found.calls >= self._profiles.app(found.key.app).max_calls:
            return self._close(found, Close.CALLS, now)
        self._rest(found, now)
        return None

    def _over(self, found: InteractionState, now: float) -> Close | None:
        if found.calls >= self._profiles.app(found.key.app).max_calls:
            return Close.CALLS
        if found.in_flight:
            return None
        if now - found.active >= self._profiles.limits.idle_ttl:
            return Close.IDLE
        return Close.AGE if now - found.opened >= self._profiles.limits.max_age else None

    def _rest(self, found: InteractionState, now: float) -> None:
        limits, idle = self._profiles.limits, self._idle.setdefault(found.key.client, {})
        idle[found.key] = found
        deadline = min(found.active + limits.idle_ttl, found.opened + limits.max_age)
        heapq.heappush(self._deadlines, (deadline, next(self._numbers), found))
        while len(idle) > limits.max_interactions:
            longest = next(iter(idle.values()))
            self._wake(longest.key)
            self._unreported.append(self._close(longest, Close.CROWDED, now))

    def _wake(self, key: InteractionKey) -> InteractionState | None:
        idle = self._idle.get(key.client, {})
        found = idle.pop(key, None)
        if found is not None and not idle:
            del self._idle[key.client]
        return found

    def _is_idle(self, found: InteractionState) -> bool:
        return self._idle.get(found.key.client, {}).get(found.key) is found

    def _resume(self, key: InteractionKey, now: float) -> InteractionState | None:
        found = self._wake(key)
        reason = self._over(found, now) if found is not None else None
        if found is not None and reason is not None:
            self._unreported.append(self._close(found, reason, now))
            return None
        return found

    def _open(self, key: InteractionKey, token: bytes, now: float) -> InteractionState:
        claim = self._claim(key, token, now)
        if claim is None:
            return InteractionState(key, opened=now)
        return InteractionState(key, claim.opened - self._unix_offset, claim.stage)

    def _claim_for(self, found: InteractionState) -> TokenClaim:
        return TokenClaim(to_microsecond(found.opened + self._unix_offset), found.calls)

    def _claim(self, key: InteractionKey, token: bytes, now: float) -> TokenClaim | None:
        claim = self._signer.verify(key, token) if token else None
        if claim is None or now + self._unix_offset - claim.opened >= self._profiles.limits.max_age:
            return None
        if claim.stage >= self._profiles.app(key.app).max_calls:
            return None
        return claim if self._closures.outlived_by(key, claim) else None

    def _close(self, found: InteractionState, reason: Close, now: float) -> FinishedInteraction:
        # After max_age every gateway rejects its tokens.
        self._closures.add(found.key, self._claim_for(found), now + self._profiles.limits.max_age)
        return FinishedInteraction(found.key, found.calls, reason)

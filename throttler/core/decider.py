"""What is decided of an arriving call: whether it goes on, which interaction it continues, and what it weighs.

Times are `now`, in seconds of one clock that never goes back, such as time.monotonic(). A wall clock would not do: set
back it would keep every window full, set ahead it would empty them and end interactions that are in progress. Only
tokens carry Unix time, since other gateways read them: it is `now` plus an offset that the caller measures now and
then (`synchronize`).
"""

from typing import NamedTuple

from throttler.core.expectations import Expectations, ExpectationSubject
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.profiles import Expectation, Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.throttle import Admitted, Caller, Rejected, Throttle


class Arrival(NamedTuple):
    """A call that asks to be let in: all that the decision about it depends on, but for the time."""

    caller: Caller
    interaction: str = ""  # its id; empty: the call belongs to none
    token: bytes = b""  # what the caller was given with the interaction's last call
    last: bool = False  # the caller says that it is the interaction's last call
    app_is_bound: bool = False  # the key alone says which app it is of; otherwise its norm is 1
    overloaded: bool = False  # the pool of the model that it asks for is overloaded


class Permit(NamedTuple):
    """The call goes on. `Decider.ended` or `Decider.withdrawn` is told of each permit once."""

    arrival: Arrival
    key: InteractionKey | None  # the interaction that it counts in
    subject: ExpectationSubject | None  # what is expected to need `norm`; None where the app is not bound to the key
    protected: bool  # it continues an interaction, and its client is within the cap on such calls
    stage: int  # its number in its interaction, from 0; 0 without one
    token: bytes  # for the interaction's next call; empty without one
    norm: float  # tokens that it is expected to need, weighted, over those of the reference: a factor of its weight


class LimitStatus(NamedTuple):
    """What a client has of its limit: of `limit` calls in a window it has `remaining` at this gateway.

    `reset` are the seconds until it has all of them again, unless it calls before.
    """

    limit: int
    remaining: int
    reset: float


class Decider:
    """Decides once per arriving call, by a throttle, and counts the call in its interaction."""

    def __init__(self, throttle: Throttle, interactions: Interactions, expectations: Expectations) -> None:
        self._throttle = throttle
        self._interactions = interactions
        self._expectations = expectations

    def configure(self, profiles: Profiles) -> None:
        """Apply other profiles from now on; counts, interactions and what was learned stay."""
        self._throttle.configure(profiles)
        self._interactions.configure(profiles)
        self._expectations.configure(profiles)

    def synchronize(self, unix_offset: float) -> None:
        """Take it that Unix time is `now + unix_offset`, in seconds."""
        self._interactions.synchronize(unix_offset)

    def decide(self, arrival: Arrival, now: float) -> Permit | Rejected | QuotaAccount:
        """Decide about a call, and count it.

        An Account: neither has been done yet. The caller asks the other gateways for more of this limit, by which the
        call would be refused, and then decides again.
        """
        caller, interaction, given = arrival.caller, arrival.interaction, arrival.token
        key = InteractionKey(caller.client, caller.app, interaction) if interaction else None
        continues = key is not None and self._interactions.continues(key, given, now)
        decision = self._throttle.admit(caller, continues, arrival.overloaded, now)
        if not isinstance(decision, Admitted):
            return decision
        stage, token = 0, b""
        if key is not None:
            stage, token = self._interactions.admitted(key, given, now), self._interactions.token(key)
        if not arrival.app_is_bound:
            return Permit(arrival, key, None, decision.protected, stage, token, norm=1.0)
        subject = ExpectationSubject(caller.tenant, caller.app, stage)
        return Permit(arrival, key, subject, decision.protected, stage, token, self._expectations.norm(subject))

    def limit_status(self, client: str, now: float) -> LimitStatus | None:
        """Return how much of its limit a client has; None where nothing limits it. Nothing is counted."""
        account = self._throttle.user_account(client)
        if account is None:
            return None
        window = self._throttle.window
        remaining = max(0, account.limit - window.used(account.key, now))
        return LimitStatus(account.limit, remaining, window.reset(account.key, now))

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that something else refused before it was decided about: towards its user."""
        self._throttle.refused(client, now)

    def ended(self, permit: Permit, needed: Expectation | None, now: float) -> FinishedInteraction | None:
        """Return the interaction that closes with this call, if it does. `needed`: its tokens, where it completed."""
        arrival = permit.arrival
        if needed is not None and permit.subject is not None:
            self._expectations.observed(permit.subject, arrival.caller.client, needed)
        if permit.key is None:
            return None
        return self._interactions.finished(permit.key, end=arrival.last, now=now)

    def withdrawn(self, permit: Permit, now: float) -> FinishedInteraction | None:
        """Take back the permit of a call that something else refused: it neither opens an interaction nor ends one.

        As an arrival it stays counted. Returns the interaction that closes with it, if another call was to end that.
        """
        if permit.key is None:
            return None
        return self._interactions.withdrawn(permit.key, permit.stage, now)

    def end_interaction(self, key: InteractionKey, token: bytes, now: float) -> FinishedInteraction | None:
        """Take the caller's word that an interaction is over; return it, unless a call in flight is still to end it."""
        return self._interactions.ended(key, token, now)

    def expired(self, now: float) -> list[FinishedInteraction]:
        """Close and return the interactions whose time is over; call it every few seconds."""
        return self._interactions.expired(now)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self._throttle.check_invariants()
        self._interactions.check_invariants()
        self._expectations.check_invariants()

"""The decision about an arriving call: whether it is admitted, which interaction it continues, and its norm.

`now` is in seconds of a monotonic clock, such as time.monotonic(). A wall clock would be wrong: set back it would keep
every window full; set ahead it would empty the windows and close interactions in progress. Only tokens carry Unix time,
because other gateways read them. Unix time is `now` plus an offset that the caller measures regularly (`synchronize`).
"""

from typing import NamedTuple

from fairlead.outcomes import Outcome
from throttler.core.budget import BudgetDemand, TokenUse
from throttler.core.budgets import UNRESERVED, Budgets, Reservation
from throttler.core.expectations import Expectations, ExpectationSubject
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.pool_claims import PoolClaims
from throttler.core.profiles import Expectation, Profiles
from throttler.core.throttle import Admitted, Caller, Decision, Rejected, ThrottleRule, tightest
from throttler.core.windows import LimitStatus, QuotaAccount, QuotaDemand
from throttler.core.working_sets import Context, PoolMemory, WorkingSets


class Arrival(NamedTuple):
    """An arriving call: everything on which the decision about it depends, except the time."""

    caller: Caller
    interaction: str = ""  # id; empty: the call belongs to no interaction
    token: bytes = b""  # the token that the caller received with the interaction's previous call
    last: bool = False  # the caller declares the call to be the interaction's last one
    app_is_bound: bool = False  # the API key alone determines the app; otherwise the norm is 1
    overloaded: bool = False  # the pool of the requested model is overloaded
    # What is known of the tokens that the call will need, for budgets; 0: not known.
    prompt_tokens: int = 0
    max_tokens: int = 0
    stage: int = 0  # of a call that names no interaction, for its app's expectation
    model: str = ""  # for its price and its pool
    background: bool = False  # it takes only what no interactive call wants, and uses up no rate of theirs
    pool_tokens: int = 0  # of KV cache that the workers of its model have together; 0: not known
    share: float = 1.0  # of its tenant


class Permit(NamedTuple):
    """The record of an admitted call. Each permit is settled once, by `Decider.ended` or `Decider.withdrawn`."""

    arrival: Arrival
    key: InteractionKey | None  # the interaction to which the call belongs
    subject: ExpectationSubject | None  # what is expected to need `norm`; None where the app is not bound to the key
    protected: bool  # it continues an interaction, and its client is within the cap on such calls
    stage: int  # the call's number in its interaction, from 0; 0 without an interaction
    token: bytes  # for the interaction's next call; empty without an interaction
    norm: float  # expected weighted tokens divided by `reference_tokens`: a factor of the request's weight
    reservation: Reservation  # of budgets; settled apart from the permit, once the call's use is known


class ThrottleState(NamedTuple):
    """The state of limits and interactions at one moment.

    `exhausted` maps each limit that is used up to the seconds until another arrival fits.
    """

    exhausted: dict[QuotaAccount, float]
    interactions_in_flight: int
    interactions_idle: int


class Decider:
    """Decides once about each arriving call, with a throttle and budgets; counts it in its interaction."""

    def __init__(
        self,
        throttle: ThrottleRule,
        interactions: Interactions,
        expectations: Expectations,
        budgets: Budgets,
        claims: PoolClaims | None = None,
    ) -> None:
        self._throttle = throttle
        self._enforces = throttle.enforces(overloaded=True)  # whether there are limits at all
        self._interactions = interactions
        self._expectations = expectations
        self.budgets = budgets
        self._claims = claims or PoolClaims()

    def configure(self, profiles: Profiles) -> None:
        """Apply new profiles from now on; counts, interactions and learned expectations stay."""
        self._throttle.configure(profiles)
        self._interactions.configure(profiles)
        self._expectations.configure(profiles)
        self.budgets.configure(profiles)

    def synchronize(self, unix_offset: float) -> None:
        """Set the offset of Unix time: Unix time is `now + unix_offset`, in seconds."""
        self._interactions.synchronize(unix_offset)
        self.budgets.accounts.synchronize(unix_offset)

    def decide(self, arrival: Arrival, now: float) -> Permit | Rejected | QuotaDemand | BudgetDemand:
        """Decide about a call, and count it.

        A demand as the result means that the call is neither decided nor counted yet: this limit would refuse it.
        The caller requests more of this limit from the other gateways and then calls `decide` again.
        """
        caller, interaction, given = arrival.caller, arrival.interaction, arrival.token
        key = InteractionKey(caller.client, caller.app, interaction) if interaction else None
        continues = key is not None and self._interactions.continues(key, given, now)
        if key is not None and not continues and (lacking := self._refusal_by_memory(arrival, key, now)):
            return lacking
        use = self._expected_use(arrival, key, now) if self.budgets.are_set else UNRESERVED.use
        has_budgets = self._enforces and self.budgets.are_set
        if has_budgets and (refusal := self._refusal_by_budgets(arrival, key, use, continues, now)):
            return refusal
        is_free = arrival.background and not self._throttle.enforces(overloaded=False)
        decision: Decision = Admitted(False)
        if not is_free:
            decision = self._throttle.admit(caller, continues, arrival.overloaded, now)
        if isinstance(decision, QuotaAccount):
            return QuotaDemand(decision)
        if isinstance(decision, Rejected):
            return decision
        reservation = self.budgets.reserve(caller, use, decision.protected, now, key, uses_rates=not is_free)
        protected = decision.protected and reservation.is_protected
        stage, token = 0, b""
        if key is not None:
            stage, token = self._interactions.admitted(key, given, now), self._interactions.token(key)
            if working_set := self._working_set(arrival):
                working_set.admitted(key, arrival.share, arrival.prompt_tokens, now)
        if not arrival.app_is_bound:
            return Permit(arrival, key, None, protected, stage, token, 1.0, reservation)
        subject = ExpectationSubject(caller.tenant, caller.app, stage)
        return Permit(arrival, key, subject, protected, stage, token, self._expectations.norm(subject), reservation)

    def limit_status(self, caller: Caller, now: float) -> LimitStatus | None:
        """Return what is left of the limit of the caller's user, app or tenant of which least is; None without any.

        Nothing is counted.
        """
        return tightest([self._throttle.window.status(each, now) for each in self._throttle.accounts(caller)])

    def token_status(self, caller: Caller, now: float) -> LimitStatus | None:
        """Return the same of budgets. Nothing is booked."""
        return self.budgets.status(caller, now) if self._enforces and self.budgets.are_set else None

    def state(self, now: float) -> ThrottleState:
        """Return what an operator sees of limits and interactions. O(accounts); nothing is counted."""
        exhausted = self._throttle.window.exhausted(now) | self.budgets.accounts.exhausted(now)
        return ThrottleState(exhausted, self._interactions.in_flight, self._interactions.idle)

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that was refused before `decide`; it counts only towards its user's limit."""
        self._throttle.refused(client, now)

    def ended(
        self, permit: Permit, needed: Expectation | None, now: float, context: Context | None = None
    ) -> FinishedInteraction | None:
        """Settle the permit of a call that has ended; return the interaction that closes with it, if one does.

        `needed` are the tokens of the call, and `context` is what it leaves; None if it did not complete.
        """
        arrival = permit.arrival
        if needed is not None and permit.subject is not None:
            self._expectations.observed(permit.subject, arrival.caller.client, needed)
        if permit.key is None:
            return None
        if working_set := self._working_set(arrival):
            working_set.ended(permit.key, arrival.prompt_tokens, context, now)
        return self._closed(self._interactions.finished(permit.key, end=arrival.last, now=now))

    def withdrawn(self, permit: Permit, now: float) -> FinishedInteraction | None:
        """Settle the permit of a call that was refused later: the call neither opens nor ends an interaction.

        Its arrival stays counted, and its reservation is given back. Return the interaction that closes with it, if an
        earlier call declared its end.
        """
        self.budgets.settle(permit.reservation, TokenUse(0, 0), now)
        if permit.key is None:
            return None
        if working_set := self._working_set(permit.arrival):
            working_set.ended(permit.key, permit.arrival.prompt_tokens, None, now)
        return self._closed(self._interactions.withdrawn(permit.key, permit.stage, now))

    def warnings(self, caller: Caller, interaction: InteractionKey | None, now: float) -> list[str]:
        """Return the budgets of which little is left; see Budgets."""
        return self.budgets.warnings(caller, interaction, now) if self._enforces and self.budgets.are_set else []

    def end_interaction(self, key: InteractionKey, token: bytes, now: float) -> FinishedInteraction | None:
        """End an interaction on the caller's request; return it if it closes now, without calls in flight."""
        return self._closed(self._interactions.ended(key, token, now))

    def expired(self, now: float) -> list[FinishedInteraction]:
        """Close and return the expired interactions; to be called every few seconds."""
        closed = self._interactions.expired(now)
        for each in closed:
            self._closed(each)
        return closed

    def check_invariants(self) -> None:
        self._throttle.check_invariants()
        self._interactions.check_invariants()
        self._expectations.check_invariants()
        self.budgets.check_invariants()
        self._claims.check_invariants()

    def _closed(self, finished: FinishedInteraction | None) -> FinishedInteraction | None:
        if finished is not None:
            self.budgets.closed(finished.key)
            self._claims.closed(finished.key)
        return finished

    def _working_set(self, arrival: Arrival) -> WorkingSets | None:
        """Return the claims on the pool of an interactive call's model, under a throttle that protects interactions."""
        if not (arrival.pool_tokens and self._throttle.protects) or arrival.background:
            return None
        return self._claims.of(arrival.model)

    def _refusal_by_memory(self, arrival: Arrival, key: InteractionKey, now: float) -> Rejected | None:
        """Return how a new interaction is refused for which the pool has no memory; it does not count as a call."""
        working_set = self._working_set(arrival)
        if working_set is None:
            return None
        pool = PoolMemory(arrival.pool_tokens, arrival.overloaded)
        refusal = working_set.refusal(key, arrival.share, arrival.prompt_tokens, pool, now)
        if refusal is None:
            return None
        message = f"overloaded, and {refusal.reason}; retry in {refusal.retry_after:.1f} s"
        return Rejected(Outcome.THROTTLED_MEMORY, refusal.retry_after, message, refusal.limit)

    def _expected_use(self, arrival: Arrival, key: InteractionKey | None, now: float) -> TokenUse:
        stage = arrival.stage if key is None else self._interactions.next_stage(key, arrival.token, now)
        return self.budgets.expected(
            arrival.caller.app, stage, arrival.prompt_tokens, arrival.max_tokens, arrival.model
        )

    def _refusal_by_budgets(
        self, arrival: Arrival, key: InteractionKey | None, use: TokenUse, continues: bool, now: float
    ) -> Rejected | BudgetDemand | None:
        """Return how budgets refuse a call; the call then counts towards its user's calls."""
        throttle = self._throttle
        refusal = self.budgets.refusal(
            arrival.caller,
            use,
            continues,
            now,
            interaction=key,
            overloaded=throttle.enforces(arrival.overloaded and not arrival.background),
            protects_from_rates=throttle.protects,
        )
        if isinstance(refusal, Rejected):
            throttle.refused(arrival.caller.client, now)
        return refusal

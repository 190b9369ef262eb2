"""A simulated gateway's decision about each call: the throttler's core, leases, and the limit of open calls."""

from collections.abc import Callable
from functools import partial

from fairlead.errors import ClientLimit, QueueFull, error_for
from gateway.core import call_events as events
from gateway.core.client_limits import OpenCallLimiter
from global_scheduler.core.dispatcher import Dispatcher
from serving.cost import WeightedTokens
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
from simulation.shared_limits import SharedLimits
from simulation.spec import ADMISSIONS, ClusterSpec
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.profiles import Profiles
from throttler.core.quota import LocalQuota, QuotaDemand
from throttler.core.throttle import Caller, Rejected
from throttler.core.token_limits import TokenLimits
from throttler.core.windows import AllCounts

MODEL = "model"
TENANT = "tenant"  # all clients are users of one tenant and share its apps' limits
OVERLOAD_SECONDS = 0.1  # between two checks of the pool's overload
Tokens = dict[InteractionKey, bytes]  # latest token that each interaction's client received, from any gateway


class SimulatedAdmission:
    """Admits calls at one gateway; `admitted` is called with each permit and the time."""

    def __init__(
        self, spec: ClusterSpec, clock: VirtualClock, dispatcher: Dispatcher, shared: SharedLimits, tokens: Tokens
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._dispatcher = dispatcher
        self._tokens = tokens
        profiles = Profiles(limits=spec.limits)
        quota = LeasedQuota(spec.window_seconds, spec.gateways) if spec.gateways > 1 else LocalQuota()
        throttle = ADMISSIONS[spec.throttle](profiles, quota, spec.window_seconds)
        token_limits = TokenLimits(profiles, quota, WeightedTokens(), spec.window_seconds)
        counts = AllCounts(throttle.window, token_limits.window)
        self._link = shared.connect(quota, counts) if isinstance(quota, LeasedQuota) else None
        self._decider = Decider(throttle, Interactions("simulation", profiles), Expectations(profiles), token_limits)
        self._limiter = OpenCallLimiter(per_client=spec.max_streams_per_client, total=spec.max_streams)
        self._permits: dict[SimulatedCall, Permit] = {}
        self._counted: dict[SimulatedCall, None] = {}  # by the limiter
        self._overloaded = False
        self._overload_checked_at = -OVERLOAD_SECONDS
        self.admitted: Callable[[Permit, float], None] = lambda permit, now: None

    def decide(self, call: SimulatedCall, then: Callable[[events.Event], None]) -> None:
        """Decide about a call and call `then` with the event for its machine, maybe after requests for leases."""
        key = InteractionKey(call.client, call.app, call.interaction)
        arrival = Arrival(
            Caller(TENANT, call.client, call.app),
            call.interaction,
            self._tokens.get(key, b""),
            last=call.last,
            overloaded=self._is_overloaded(),
        )
        decision = self._decider.decide(arrival, self._clock.now)
        if isinstance(decision, QuotaDemand):
            assert self._link is not None, "the only gateway has every limit to itself"
            self._link.lease(decision, partial(self._decide_again, call, then))
            return
        if isinstance(decision, Rejected):
            error = error_for(decision.outcome, decision.message, retry_after=decision.retry_after)
            then(events.Failed(error))
            return
        self.admitted(decision, self._clock.now)
        self._permits[call] = decision
        try:
            self._limiter.open(call.client, decision.protected)
        except (ClientLimit, QueueFull) as refusal:
            then(events.Failed(refusal))
            return
        self._counted[call] = None
        if call.interaction:
            self._tokens[key] = decision.token
        then(events.Decided(self._spec.tokens_per_message))

    def protected(self, call: SimulatedCall) -> bool:
        """Return whether the call, which was admitted, continues an interaction in progress."""
        return self._permits[call].protected

    def ended(self, call: SimulatedCall) -> None:
        """Settle what the call holds, which was ready for a worker."""
        if permit := self._released(call):
            self._decider.ended(permit, None, self._clock.now)

    def withdrawn(self, call: SimulatedCall) -> None:
        """Settle what a call holds that ended before it was ready; it opens and ends no interaction."""
        if permit := self._released(call):
            self._decider.withdrawn(permit, self._clock.now)

    def _released(self, call: SimulatedCall) -> Permit | None:
        """Return the permit of a call, which counts no longer among the open ones; None if it had none."""
        if call in self._counted:
            del self._counted[call]
            self._limiter.close(call.client)
        return self._permits.pop(call, None)

    def check_invariants(self) -> None:
        """Raise AssertionError when an account, a window, a lease or a count of open calls is impossible."""
        self._decider.check_invariants()
        self._limiter.check_invariants()
        assert len(self._counted) == self._limiter.count, f"{len(self._counted)} open, {self._limiter.count} counted"
        if self._link is not None:
            self._link.check_invariants()

    def _decide_again(self, call: SimulatedCall, then: Callable[[events.Event], None]) -> None:
        if call.outcome is None:
            self.decide(call, then)

    def _is_overloaded(self) -> bool:
        if self._clock.now - self._overload_checked_at >= OVERLOAD_SECONDS:
            self._overload_checked_at = self._clock.now
            self._overloaded = self._dispatcher.overloaded(self._clock.now).get(MODEL, False)
        return self._overloaded

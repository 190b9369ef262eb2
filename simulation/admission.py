"""A simulated gateway's decision about each call: the throttler's core, leases, and the limit of open calls."""

from collections.abc import Callable
from functools import partial

from fairlead.errors import FairleadError
from gateway.core import call_events as events
from gateway.core.client_limits import CallAdmission, OpenCallLimiter
from global_scheduler.core.dispatcher import Dispatcher
from serving.cost import WeightedTokens
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
from simulation.spec import ADMISSIONS, ClusterSpec
from throttler.core.budget import BudgetDemand, TokenUse
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import Interactions
from throttler.core.pool_claims import PoolClaims
from throttler.core.profiles import Profiles
from throttler.core.throttle import Caller
from throttler.core.windows import Quota, QuotaDemand
from throttler.core.working_sets import Context

MODEL = "model"
TENANT = "tenant"  # all clients are users of one tenant and share its apps' limits
OVERLOAD_SECONDS = 0.1  # between two checks of the pool's overload
Tokens = dict[InteractionKey, bytes]  # latest token that each interaction's client received, from any gateway


class SimulatedAdmission:
    """Admits calls at one gateway; `admitted` is called with each permit of the throttler and the time."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: VirtualClock,
        dispatcher: Dispatcher,
        tokens: Tokens,
        quota: Quota,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._dispatcher = dispatcher
        self._tokens = tokens
        profiles = Profiles(limits=spec.limits)
        self.throttle = ADMISSIONS[spec.throttle](profiles, quota, spec.window_seconds)
        budgets = Budgets(profiles, BudgetAccounts(), WeightedTokens())
        self.claims = PoolClaims()
        interactions, expectations = Interactions("simulation", profiles), Expectations(profiles)
        decider = Decider(self.throttle, interactions, expectations, budgets, self.claims)
        self._open_calls = OpenCallLimiter(per_client=spec.max_streams_per_client, total=spec.max_streams)
        self._calls: CallAdmission[SimulatedCall] = CallAdmission(decider, self._open_calls)
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
            prompt_tokens=call.prompt_tokens,
            pool_tokens=self._pool_tokens(),
        )
        try:
            permit = self._calls.admit(call, arrival, self._clock.now)
        except FairleadError as refusal:
            if (held := self._calls.permit(call)) is not None:  # the limit on open calls refused it
                self.admitted(held, self._clock.now)
            then(events.Failed(refusal))
            return
        assert not isinstance(permit, BudgetDemand), "simulated gateways have no budgets"
        if isinstance(permit, QuotaDemand):
            self._lease(permit, partial(self._decide_again, call, then))
            return
        self.admitted(permit, self._clock.now)
        if call.interaction:
            self._tokens[key] = permit.token
        then(events.Decided(self._spec.tokens_per_message))

    def protected(self, call: SimulatedCall) -> bool:
        """Return whether the call, which was admitted, continues an interaction in progress."""
        permit = self._calls.permit(call)
        return permit is not None and permit.protected

    def ended(self, call: SimulatedCall) -> None:
        """Settle what the call holds, which was ready for a worker."""
        left = Context(call.prompt_tokens + call.received, call.cached_tokens) if call.completed else None
        self._calls.ended(call, TokenUse(0, 0), None, self._clock.now, left)

    def withdrawn(self, call: SimulatedCall) -> None:
        """Settle what a call holds that ended before it was ready; it opens and ends no interaction."""
        self._calls.withdrawn(call, self._clock.now)

    def check_invariants(self) -> None:
        """Raise AssertionError when an account, a window or a count of open calls is impossible."""
        self._calls.check_invariants()
        own, counted = self._calls.count, self._open_calls.count
        assert own == counted, f"{own} open, {counted} counted"

    def _lease(self, demand: QuotaDemand, then: Callable[[], None]) -> None:
        """Request what `demand` lacks, and call `then` after any answer."""
        raise AssertionError("the only gateway has every limit to itself")

    def _decide_again(self, call: SimulatedCall, then: Callable[[events.Event], None]) -> None:
        if call.outcome is None:
            self.decide(call, then)

    def _pool_tokens(self) -> int:
        """Return the tokens of KV cache of the whole pool; 0 if gateways do not know them."""
        if not self._spec.reports_memory:
            return 0
        return sum(member.identity.kv_tokens for member in self._dispatcher.live(self._clock.now))

    def _is_overloaded(self) -> bool:
        if self._clock.now - self._overload_checked_at >= OVERLOAD_SECONDS:
            self._overload_checked_at = self._clock.now
            self._overloaded = self._dispatcher.overloaded(self._clock.now).get(MODEL, False)
        return self._overloaded

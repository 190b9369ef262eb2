"""Which calls a gateway admits: the throttler decides, then the limit on open calls."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from fairlead.errors import error_for
from gateway.core.client_limits import OpenCallLimiter, counted_as
from throttler.core.budget import BudgetDemand, TokenUse
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.interactions import FinishedInteraction
from throttler.core.profiles import Expectation
from throttler.core.quota import QuotaDemand
from throttler.core.throttle import Rejected
from throttler.core.working_sets import Context

Call = TypeVar("Call", bound=Hashable)


class CallAdmission(Generic[Call]):
    """What admitted calls hold: a permit of the throttler, and a place among the open calls.

    A call with a permit is settled once, by `ended` or `withdrawn`; both do nothing for a call without one.
    """

    def __init__(self, decider: Decider, open_calls: OpenCallLimiter) -> None:
        self._decider = decider
        self._open_calls = open_calls
        self._permits: dict[Call, Permit] = {}
        # The names under which calls count; not of those that only the limit on open calls refused.
        self._open: dict[Call, str] = {}

    def admit(self, call: Call, arrival: Arrival, now: float) -> Permit | QuotaDemand | BudgetDemand:
        """Admit a call; raise the FairleadError that refuses it.

        A demand as the result is what the caller has to request of the other gateways before it asks again. A call
        that has too many others open keeps its permit until it is withdrawn.
        """
        decision = self._decider.decide(arrival, now)
        if isinstance(decision, QuotaDemand | BudgetDemand):
            return decision
        if isinstance(decision, Rejected):
            raise error_for(decision.outcome, decision.message, retry_after=decision.retry_after)
        self._permits[call] = decision
        name = counted_as(arrival.caller.client, background=arrival.background)
        self._open_calls.open(name, decision.protected)
        self._open[call] = name
        return decision

    @property
    def count(self) -> int:
        """The number of admitted calls that are open; others may count towards the same limit."""
        return len(self._open)

    def permit(self, call: Call) -> Permit | None:
        """Return the permit that a call holds, if it holds one."""
        return self._permits.get(call)

    def ended(
        self, call: Call, used: TokenUse, needed: Expectation | None, now: float, context: Context | None = None
    ) -> FinishedInteraction | None:
        """Settle a call that was ready for a worker and has ended; return the interaction that closes with it.

        `needed` are the tokens of the call, and `context` is what it leaves; None if it did not complete.
        """
        permit = self._release(call)
        if permit is None:
            return None
        self._decider.budgets.settle(permit.reservation, used, now)
        return self._decider.ended(permit, needed, now, context)

    def withdrawn(self, call: Call, now: float) -> FinishedInteraction | None:
        """Settle a call that ended before it was ready; it opens and ends no interaction. See Decider."""
        permit = self._release(call)
        return None if permit is None else self._decider.withdrawn(permit, now)

    def check_invariants(self) -> None:
        """Raise AssertionError when a limit, or what a call holds of it, is impossible."""
        self._decider.check_invariants()
        self._open_calls.check_invariants()
        assert self._open.keys() <= self._permits.keys(), "a call is open and has no permit"
        assert len(self._open) <= self._open_calls.count, f"{len(self._open)} open, {self._open_calls.count} counted"

    def _release(self, call: Call) -> Permit | None:
        name = self._open.pop(call, None)
        if name is not None:
            self._open_calls.close(name)
        return self._permits.pop(call, None)

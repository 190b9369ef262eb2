"""Whether a throttle refused only whom it may refuse."""

from collections.abc import Iterable

from fairlead.outcomes import Outcome
from simulation.call import SimulatedCall
from simulation.spec import ClusterSpec
from throttler.core.throttle import WINDOW_SECONDS


def check_refusals(spec: ClusterSpec, calls: Iterable[SimulatedCall]) -> None:
    """`calls` in order of arrival, those that continue an interaction with a stage above 0.

    Raises AssertionError when a call was throttled although its user, or its app, had fewer calls in the last minute
    than it may; or, under OIT, although it continued an interaction and its client's cap on such calls was not reached.
    """
    limits, arrived = spec.limits, list(calls)
    for number, call in enumerate(arrived):
        if call.outcome not in (Outcome.THROTTLED_USER, Outcome.THROTTLED_APP):
            continue
        lately = [other for other in arrived[:number] if other.arrival > call.arrival - WINDOW_SECONDS]
        mine = [other for other in lately if other.client == call.client]
        if call.outcome is Outcome.THROTTLED_USER:
            _check(call, mine, limits.user_per_minute)
        else:
            _check(call, [other for other in lately if other.app == call.app], limits.app_per_minute)
        if spec.throttle == "oit" and call.stage:
            _check(call, [other for other in mine if other.stage], limits.protected_per_minute)


def _check(call: SimulatedCall, counted: list[SimulatedCall], limit: int) -> None:
    detail = f"stage {call.stage} of {call.interaction!r}" if call.interaction else "no interaction"
    assert len(counted) >= limit, f"call {call.number} ({detail}) throttled at {len(counted)} of {limit}"

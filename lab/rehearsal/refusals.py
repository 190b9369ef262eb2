"""Check that the gateway refused only calls that it may refuse."""

from collections.abc import Iterable

from fairlead.outcomes import Outcome
from simulation.call import SimulatedCall
from simulation.spec import ClusterSpec

THROTTLED = (Outcome.THROTTLED_USER, Outcome.THROTTLED_APP, Outcome.THROTTLED_TENANT)


def check_refusals(spec: ClusterSpec, gateways: int, calls: Iterable[SimulatedCall]) -> None:
    """Check the refusals among `calls`, which are in order of arrival; a stage above 0 continues an interaction.

    Raises AssertionError in four cases: a call was throttled although its user, its app, or the tenant had made fewer
    calls in the last window than the limit; under OIT, a call that continues an interaction was throttled although
    neither its client nor the tenant had reached the cap on such calls, or for the pool's memory; or a call was refused
    for its client's open calls although the client had fewer calls open at its gateway than the limit.

    Several gateways may throttle a call earlier, because others hold a part of its limit; these are not checked.
    """
    limits, arrived = spec.limits, list(calls)
    for number, call in enumerate(arrived):
        is_for_memory = call.outcome is Outcome.THROTTLED_MEMORY
        assert not (is_for_memory and call.stage), f"call {call.number} continues {call.interaction!r}"
        if call.outcome is Outcome.REJECTED_CLIENT_LIMIT and not call.attempts:
            assert call.ended_at is not None
            mine = [o for o in arrived if o.client == call.client and o.gateway == call.gateway and o is not call]
            there = [
                o for o in mine if o.arrival <= call.ended_at and _is_open(o, call.ended_at)
            ]  # after a lease's wait
            _check(call, there, spec.max_streams_per_client)
        if call.outcome not in THROTTLED or gateways > 1:
            continue
        lately = [other for other in arrived[:number] if other.arrival > call.arrival - spec.window_seconds]
        mine = [other for other in lately if other.client == call.client]
        if call.outcome is Outcome.THROTTLED_USER:
            _check(call, mine, limits.user_per_minute)
        elif call.outcome is Outcome.THROTTLED_APP:
            _check(call, [other for other in lately if other.app == call.app], limits.app_per_minute)
        else:
            _check(call, lately, limits.tenant_per_minute or 0)
        if spec.throttle == "oit" and call.stage:
            of_tenant = [other for other in lately if other.stage]
            if limits.tenant_per_minute is None or len(of_tenant) < limits.kappa * limits.tenant_per_minute:
                _check(
                    call,
                    [other for other in of_tenant if other.client == call.client],
                    limits.kappa * limits.user_per_minute,
                )


def _check(call: SimulatedCall, counted: list[SimulatedCall], limit: int) -> None:
    detail = f"stage {call.stage} of {call.interaction!r}" if call.interaction else "no interaction"
    assert len(counted) >= limit, f"call {call.number} ({detail}) refused at {len(counted)} of {limit} calls"


def _is_open(call: SimulatedCall, now: float) -> bool:
    return call.ended_at is None or call.ended_at >= now

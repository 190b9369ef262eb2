"""The state of the page: what its viewers see of the cluster at one moment, as JSON objects within objects."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from fairlead.v1 import scheduler_pb2
from gateway.accounting import Accounting
from gateway.core.merge_patch import Document
from gateway.core.service_history import ClientSample, ServiceHistory
from serving.names import tenant_of
from serving.page_shares import PageSum, evictions, of_clients, of_tenants
from serving.telemetry.records import CallRecord
from throttler.core.budget import NANO
from throttler.core.decider import ThrottleState
from throttler.core.windows import QuotaAccount

NOW_SECONDS = 5.0
MINUTE_SECONDS = 60.0
MOST_PREFIXES = 3  # latest calls that are shown of a worker
MOST_QUEUED = 400  # pairs of worker and waiting client; above it queues are sent as sums over all workers only
MOST_EXHAUSTED = 100  # limits
MOST_TENANTS = 20
MOST_EVICTIONS = 20  # pairs of tenants
TENANT_LEVEL, USER_LEVEL = "tenant", "user"
Members = Collection[scheduler_pb2.Member]  # with their loads


def samples(answer: scheduler_pb2.ListClientsResponse) -> dict[str, ClientSample]:
    """Return each client's sums; it is backlogged while it waits at every worker of a pool (DLPM, Definition 3.1).

    Clients are compared within their tenant where a worker is fair among tenants, and not at all where no level is
    that of users.
    """
    pools, fair_among = _pools(answer.cluster.members), levels(answer.cluster.members)
    found: dict[str, ClientSample] = {}
    for total in answer.clients:
        waiting = list(total.waiting)
        is_backlogged = bool(waiting) and any(all(waiting[index] for index in pool) for pool in pools)
        is_busy = bool(waiting) or total.running > 0
        found[total.client] = ClientSample(
            total.service, total.weighted_service, is_busy, is_backlogged, _siblings(total.client, fair_among)
        )
    return found


def _siblings(client: str, fair_among: Collection[str]) -> str:
    if fair_among and USER_LEVEL not in fair_among:
        return client
    return tenant_of(client) if TENANT_LEVEL in fair_among else ""


def levels(members: Members) -> list[str]:
    """Return the levels at which workers are fair, the highest first; empty without workers."""
    return list(dict.fromkeys(each.level for member in members for each in member.load.levels))


def tenants(history: ServiceHistory, answer: scheduler_pb2.ListClientsResponse) -> Document:
    """Return the service, shares and requests of the tenants with the largest shares; empty where there is one."""
    of: defaultdict[str, list[scheduler_pb2.ClientTotal]] = defaultdict(list)
    for total in answer.clients:
        of[tenant_of(total.client)].append(total)
    if len(of) < 2:
        return {}
    now, minute = history.gains(NOW_SECONDS), history.gains(MINUTE_SECONDS)
    all_now, all_minute = sum(now.values()) or 1.0, sum(minute.values()) or 1.0
    held = of_tenants(answer.cluster.members)
    found = {
        tenant: {
            "users": len(totals),
            "service": round(sum(total.service for total in totals)),
            "now": _rounded(sum(now[total.client] for total in totals) / all_now),
            "minute": _rounded(sum(minute[total.client] for total in totals) / all_minute),
            "waiting": sum(sum(total.waiting) for total in totals),
            "running": sum(total.running for total in totals),
            **_held(held.get(tenant)),
        }
        for tenant, totals in of.items()
    }
    ranked = sorted(found.items(), key=lambda item: (-item[1]["minute"], -item[1]["service"], item[0]))
    return dict(ranked[:MOST_TENANTS])


def bound(members: Members) -> float | None:
    """Return the bound of all workers together, in cost units; None if a worker's policy has none."""
    bounds = [member.load.fairness_bound for member in members if not member.load.draining]
    return sum(bounds) if bounds and all(bounds) else None


def fairness(history: ServiceHistory, members: Members) -> Document:
    """Return the bound in cost units and in seconds, and the largest gap that a worker measured beside its bound."""
    serving = [member.load for member in members if not member.load.draining]
    rate = sum(load.service_rate for load in serving)
    limit = bound(members)
    said: Document = {"backlogged": sum(course.sample.is_backlogged for course in history.courses.values())}
    if limit:
        said["bound"] = round(limit)
        said["gap_part"] = _rounded(max(load.fairness_gap / load.fairness_bound for load in serving))
    if rate:
        said["rate"] = _rounded(rate)
    if fair_among := levels(members):
        said["levels"] = ", ".join(fair_among)
    return said


def clients(history: ServiceHistory, answer: scheduler_pb2.ListClientsResponse) -> Document:
    """Return each client's service, shares and requests."""
    now, minute = history.gains(NOW_SECONDS), history.gains(MINUTE_SECONDS)
    all_now, all_minute = sum(now.values()) or 1.0, sum(minute.values()) or 1.0
    held = of_clients(answer.cluster.members)
    return {
        total.client: {
            "service": round(total.service),
            "now": _rounded(now[total.client] / all_now),
            "minute": _rounded(minute[total.client] / all_minute),
            "waiting": sum(total.waiting),
            "running": total.running,
            "backlogged": history.courses[total.client].sample.is_backlogged,
            **_ahead(history, total.client),
            **_held(held.get(total.client)),
        }
        for total in answer.clients
    }


def _held(held: PageSum | None) -> Document:
    """Return the pages that somebody pays for, and its part; nothing where no worker tells."""
    return {} if held is None else {"pages": round(held.pages), "part": round(held.part)}


def evicted(members: Members) -> Document:
    """Return the pages that tenants gave up, by the tenant that needed them and then by whose they were, most first."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (taker, owner), pages in evictions(members)[:MOST_EVICTIONS]:
        found[taker][owner] = pages
    return found


def _ahead(history: ServiceHistory, client: str) -> Document:
    """Return how far a client that waits everywhere is ahead of the least served one that it is compared with."""
    ahead = history.points[-1].ahead.get(client)
    return {} if ahead is None else {"ahead": round(ahead)}


def workers(members: Members, overloaded: Collection[str], newest: Iterable[CallRecord]) -> Document:
    """Return each worker's load, and the latest calls that it served: whose, and how much of the prompt was cached."""
    served: defaultdict[str, list[str]] = defaultdict(list)
    for call in newest:
        if call.worker and call.scheduled and len(served[call.worker]) < MOST_PREFIXES:
            served[call.worker].append(f"{call.client} {call.cached_tokens}/{call.prompt_tokens}")
    return {member.worker: _worker(member, overloaded, served[member.worker]) for member in members}


def queues(answer: scheduler_pb2.ListClientsResponse) -> Document:
    """Return what each client has waiting at each worker; empty where that is too much to send every second."""
    members = answer.cluster.members
    found: dict[str, dict[str, int]] = {member.worker: {} for member in members}
    for total in answer.clients:
        for member, waiting in zip(members, total.waiting, strict=False):  # empty: at no worker
            if waiting:
                found[member.worker][total.client] = waiting
    return found if sum(map(len, found.values())) <= MOST_QUEUED else {}


def throttle(
    state: ThrottleState, now: float, overloaded: Collection[str], accounting: Accounting, kind: str
) -> Document:
    """Return the limits that are used up, each with the Unix time at which another call fits, and the interactions."""
    soonest = sorted(state.exhausted.items(), key=lambda item: -item[1])[:MOST_EXHAUSTED]
    return {
        "kind": kind,
        "overloaded": ", ".join(sorted(overloaded)),
        "exhausted": {
            account.key: {"limit": _limit(account), "until": math.ceil(now + seconds)} for account, seconds in soonest
        },
        "waits": {"predicted": accounting.predictions, "close": accounting.close_predictions},
        "interactions": {"in_flight": state.interactions_in_flight, "idle": state.interactions_idle},
        "apps": {
            name: {
                "served": app.served,
                "throttled": app.throttled,
                "refused": app.refused,
                "failed": app.broken + app.invalid,
                "cancelled": app.cancelled,
            }
            for name, app in accounting.apps.items()
        },
    }


def _limit(account: QuotaAccount) -> float:
    """Return a limit as it is written: budgets of money are counted in billionths."""
    return account.limit / NANO if account.key.startswith("money:") else account.limit


def history_lines(history: ServiceHistory, unix_offset: float) -> Document:
    """Return shares of the last minutes, and how far clients that waited were ahead, as columns with a value per point;
    null where a client had no requests, or did not wait everywhere.

    `unix_offset` is Unix time minus the clock of the observations, in seconds.
    """
    points = history.points
    shares = history.shares(NOW_SECONDS)
    busy = sorted({name for point in points for name in point.positions})
    backlogged = sorted({name for point in points for name in point.ahead})
    return {
        "times": [round(point.at + unix_offset, 1) for point in points],
        "bound": [_whole(point.bound) for point in points],
        "lines": {name: [_part(each.get(name)) for each in shares] for name in busy},
        "ahead": {name: [_whole(point.ahead.get(name)) for point in points] for name in backlogged},
    }


def _pools(members: Members) -> list[list[int]]:
    """Return for each model the indices of its workers in `members`, without draining workers."""
    pools: defaultdict[str, list[int]] = defaultdict(list)
    for index, member in enumerate(members):
        if not member.load.draining:
            for model in member.models:
                pools[model.name].append(index)
    return list(pools.values())


def _worker(member: scheduler_pb2.Member, overloaded: Collection[str], served: list[str]) -> Document:
    load, model = member.load, member.model
    models = [model.name for model in member.models]
    state = "draining" if load.draining else "overloaded" if set(models) & set(overloaded) else "serving"
    said: dict[str, Any] = {
        "models": ", ".join(models),
        "policy": model.policy,
        "state": state,
        "running": load.running,
        "waiting": load.waiting,
        "kv": load.kv_tokens_used,
        "kv_tokens": model.kv_tokens,
        "step": _rounded(load.step_seconds),
        "queue": round(load.queue_seconds, 1),
        "served": served,
    }
    if load.prompt_tokens:
        said["hits"] = _rounded(load.cached_tokens / load.prompt_tokens)
    if load.fairness_bound:
        said["bound"] = round(load.fairness_bound)
        said["gap"] = round(load.fairness_gap)
        if load.service_rate:
            said["bound_seconds"] = _rounded(load.fairness_bound / load.service_rate)
        said["levels"] = ", ".join(f"{each.level} {each.gap / load.fairness_bound:.1%}" for each in load.levels)
    return said


def _rounded(value: float) -> float:
    """Return `value` to three digits, so that noise in further ones is not sent."""
    return float(f"{value:.3g}")


def _part(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)

"""`fairlead status`: workers with their load, each user's service, and the outcomes of interactions."""

import argparse
from collections import Counter

from cli import admin, bound, endpoint
from fairlead.v1 import scheduler_pb2, throttling_pb2
from serving.names import tenant_of
from serving.wire import served_models

PLACED = {
    "scheduler": "by the scheduler",
    "gateway": "by a gateway, no scheduler led",
    "nobody": "not at all",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command and its options to the commands of `fairlead`."""
    parser = commands.add_parser("status", help="show workers, their load and each user's service")
    admin.add_options(parser)
    parser.add_argument(
        "--gateway", action="append", default=[], help="address, repeatable (default: the stack of `fairlead up`)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables; raises a FairleadError when the scheduler or a gateway does not answer."""
    with admin.leader(args) as (_, status):
        print("\n".join([*_members(status), "", *_levels(status), *_tenants(status), *_users(status)]))
    running = endpoint.read()
    gateways = args.gateway or ([running.gateway] if running and not args.scheduler else [])
    if gateways:
        accounts = [admin.account(address, admin.secret(args)) for address in gateways]
        print("\n".join(["", *_apps(accounts), "", *_placements(accounts)]))
    return 0


def _members(status: scheduler_pb2.StatusResponse) -> list[str]:
    overloaded = {pool.model for pool in status.cluster.pools if pool.overloaded}
    row = "{:<16} {:<24} {:<19} {:<11} {:>7} {:>7} {:>13} {:>8} {:>17} {:>8} {:<10}  {}"
    lines = [f"global policy: {status.policy}"]
    if status.placed_by_others:
        lines.append(f"{status.placed_by_others:,} requests reached workers without a placement by this scheduler")
    heads = (
        "worker",
        "model",
        "engine",
        "policy",
        "running",
        "waiting",
        "KV tokens",
        "step ms",
        "gap/bound",
        "bound s",
        "admission",
    )
    lines.append(row.format(*heads, "state"))
    for member in status.cluster.members:
        model, load = member.model, member.load
        names = [model.name for model in served_models(member)]
        state = "draining" if load.draining else "overloaded" if overloaded.intersection(names) else "serving"
        used, step = f"{load.kv_tokens_used}/{model.kv_tokens}", f"{load.step_seconds * 1e3:.1f}"
        gap = f"{load.fairness_gap:,.0f}/{bound.units(load)}"
        numbers = (load.running, load.waiting, used, step, gap, bound.seconds(load))
        whose = (member.worker, ",".join(names), model.engine, model.policy)
        lines.append(row.format(*whose, *numbers, model.admission, state))
    return lines


def _levels(status: scheduler_pb2.StatusResponse) -> list[str]:
    """Return the gap between siblings of each level beside the bound, which is the same at all levels of a worker."""
    row = "{:<16} {:<24} {:>17} {:>9} {:>8}"
    lines = [
        row.format(
            member.worker,
            each.level,
            f"{each.gap:,.0f}/{bound.units(member.load)}",
            bound.level_part(member.load, each.level),
            bound.seconds(member.load),
        )
        for member in status.cluster.members
        for each in member.load.levels
    ]
    return [row.format("worker", "fair among each", "gap/bound", "of bound", "bound s"), *lines, ""] if lines else []


def _tenants(status: scheduler_pb2.StatusResponse) -> list[str]:
    """Return each tenant's service and the number of its users; nothing where there is one tenant."""
    users: dict[str, dict[str, None]] = {}
    totals: dict[str, Counter[str]] = {}
    for client in (client for worker in status.services for client in worker.clients):
        tenant = tenant_of(client.client)
        users.setdefault(tenant, {})[client.client] = None
        totals.setdefault(tenant, Counter()).update(
            {"service": round(client.service), "waiting": client.waiting, "running": client.running}
        )
    if len(totals) < 2:
        return []
    row = "{:<32} {:>12} {:>8} {:>8}  {}"
    lines = [row.format("tenant", "service", "waiting", "running", "users")]
    for tenant, total in sorted(totals.items()):
        service = f"{total['service']:,}"
        lines.append(row.format(tenant, service, total["waiting"], total["running"], len(users[tenant])))
    return [*lines, ""]


def _users(status: scheduler_pb2.StatusResponse) -> list[str]:
    row = "{:<32} {:>12} {:>8} {:>8}  {}"
    lines = [row.format("user", "service", "waiting", "running", "balance by worker")]
    totals: dict[str, list[scheduler_pb2.ClientService]] = {}
    balances: dict[str, list[str]] = {}
    for worker in status.services:
        for client in worker.clients:
            totals.setdefault(client.client, []).append(client)
            balances.setdefault(client.client, []).append(f"{worker.worker} {client.balance:,.0f}")
    for name, parts in sorted(totals.items()):
        service = sum(part.service for part in parts)
        waiting, running = sum(part.waiting for part in parts), sum(part.running for part in parts)
        lines.append(row.format(name, f"{service:,.0f}", waiting, running, ", ".join(balances[name])))
    return lines


def _apps(gateways: list[throttling_pb2.AccountResponse]) -> list[str]:
    figures = ("served", "throttled", "broken", "invalid", "cancelled", "refused", "tokens", "wasted_tokens")
    row = "{:<32}" + " {:>13}" * len(figures)
    lines = [row.format("app: interactions", *figures)]
    totals: dict[str, list[int]] = {}
    for account in (account for gateway in gateways for account in gateway.apps):
        sums = totals.setdefault(account.app, [0] * len(figures))
        totals[account.app] = [total + getattr(account, name) for total, name in zip(sums, figures, strict=True)]
    lines += [row.format(app, *(f"{figure:,}" for figure in sums)) for app, sums in sorted(totals.items())]
    if alone := sum(gateway.degraded for gateway in gateways):
        lines.append(f"{alone} of {len(gateways)} gateways cannot reach Redis and apply limits locally")
    return lines


def _placements(gateways: list[throttling_pb2.AccountResponse]) -> list[str]:
    """Return lines with the number of placements by component over all gateways, and the reason if it is not the
    scheduler."""
    totals: dict[str, Counter[str]] = {}
    for placement in (placement for gateway in gateways for placement in gateway.placements):
        totals.setdefault(placement.chosen_by, Counter())[placement.reason] += placement.count
    lines = ["requests placed"]
    for chooser, words in PLACED.items():
        reasons = totals.get(chooser, Counter())
        why = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items() if count and reason != chooser)
        lines.append(f"  {words:<32} {reasons.total():>13,}" + (f"  ({why})" if why else ""))
    return lines

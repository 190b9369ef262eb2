"""`fairlead status`: workers with their load, each user's service, and the outcomes of interactions."""

import argparse
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli import admin, bound, client_sums
from cli.client_sums import ClientSum
from cli.table import Column, table
from fairlead.v1 import scheduler_pb2, throttling_pb2
from serving.page_shares import evictions

PLACED = {
    "scheduler": "by the scheduler",
    "gateway": "by a gateway, no scheduler led",
    "nobody": "not at all",
}
OTHERS = "(others)"
WIDE = 10_000  # columns: all that there is
NO_TERMINAL = 80, 24  # columns and lines
MOST_EVICTIONS = 10  # rows
OUTCOMES = ("served", "throttled", "broken", "invalid", "cancelled", "refused", "tokens", "wasted_tokens")

Member = scheduler_pb2.Member
App = tuple[str, Mapping[str, int]]
Evicted = tuple[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Level:
    """One level of fairness at one worker."""

    member: Member
    level: str
    gap: float


def _models(member: Member) -> str:
    return ",".join(model.name for model in member.models)


def _kv(member: Member) -> str:
    return f"{member.load.kv_tokens_used:,}/{member.model.kv_tokens:,}"


WORKERS: Sequence[Column[Member]] = (
    Column("worker", 14, lambda member: member.worker, is_text=True),
    Column("model", 14, _models, is_text=True),
    Column("running", 7, lambda member: str(member.load.running)),
    Column("waiting", 7, lambda member: str(member.load.waiting)),
    Column("waits s", 7, lambda member: f"{member.load.queue_seconds:,.1f}"),
    Column("gap s", 6, lambda member: bound.in_seconds(member.load.fairness_gap, member.load)),
    Column("bound s", 7, lambda member: bound.seconds(member.load)),
    Column("KV tokens", 9, _kv, rank=5),
    Column("engine", 19, lambda member: member.model.engine, is_text=True, rank=3),
    Column("policy", 8, lambda member: member.model.policy, is_text=True, rank=1),
    Column("step ms", 7, lambda member: f"{member.load.step_seconds * 1e3:.1f}", rank=4),
    Column("gap/bound", 9, lambda member: f"{member.load.fairness_gap:,.0f}/{bound.units(member.load)}", rank=6),
    Column("admission", 10, lambda member: member.model.admission, is_text=True, rank=2),
)
LEVELS: Sequence[Column[Level]] = (
    Column("worker", 14, lambda row: row.member.worker, is_text=True),
    Column("fair among each", 15, lambda row: row.level, is_text=True),
    Column("gap/bound", 17, lambda row: f"{row.gap:,.0f}/{bound.units(row.member.load)}"),
    Column("of bound", 8, lambda row: bound.level_part(row.member.load, row.level)),
    Column("gap s", 6, lambda row: bound.in_seconds(row.gap, row.member.load)),
    Column("bound s", 7, lambda row: bound.seconds(row.member.load)),
)
SUMS: Sequence[Column[ClientSum]] = (
    Column("service", 12, lambda row: f"{row.service:,.0f}"),
    Column("waiting", 7, lambda row: str(row.waiting)),
    Column("running", 7, lambda row: str(row.running)),
    Column("pages/part", 12, lambda row: str(row.held or "-"), rank=1),
)
TENANTS: Sequence[Column[ClientSum]] = (
    Column("tenant", 24, lambda row: row.name, is_text=True),
    *SUMS,
    Column("users", 6, lambda row: str(len(row.users)), rank=2),
)
EVICTED: Sequence[Column[Evicted]] = (
    Column("evicted for", 24, lambda row: row[0][0] or OTHERS, is_text=True),
    Column("pages of", 24, lambda row: row[0][1] or OTHERS, is_text=True),
    Column("pages", 12, lambda row: f"{row[1]:,}"),
)
APPS: Sequence[Column[App]] = (
    Column("app: interactions", 17, lambda row: row[0] or "(not named)", is_text=True),
    *(
        Column(name, len(name), lambda row, name=name: f"{row[1][name]:,}", rank=rank)  # type: ignore[misc]
        for rank, name in zip((0, 0, 0, 5, 4, 3, 2, 1), OUTCOMES, strict=True)
    ),
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("status", help="show workers, their load and each user's service")
    admin.add_options(parser)
    admin.add_gateways(parser)
    parser.add_argument(
        "--wide", action="store_true", help="show all columns and whole names, whatever the terminal holds"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the tables; raises a FairleadError when the scheduler or a gateway does not answer."""
    width = WIDE if args.wide else shutil.get_terminal_size(NO_TERMINAL).columns
    with admin.leader(args) as (_, status):
        tables = (
            _members(status, width),
            _levels(status, width),
            _tenants(status, width),
            _users(status, width),
            _evicted(status, width),
        )
        print("\n\n".join("\n".join(lines) for lines in tables if lines))
    if accounts := admin.accounts(args):
        print("\n".join(["", *_apps(accounts, width), "", *_placements(accounts), *_predictions(accounts)]))
    return 0


def _members(status: scheduler_pb2.StatusResponse, width: int) -> list[str]:
    overloaded = {pool.model for pool in status.cluster.pools if pool.overloaded}

    def state(member: Member) -> str:
        models = {model.name for model in member.models}
        return "draining" if member.load.draining else "overloaded" if overloaded & models else "serving"

    lines = [f"global policy: {status.policy}"]
    if status.placed_by_others:
        lines.append(f"{status.placed_by_others:,} requests reached workers without a placement by this scheduler")
    members = sorted(status.cluster.members, key=lambda member: (-member.load.queue_seconds, member.worker))
    return [*lines, *table([*WORKERS, Column("state", 10, state, is_text=True)], members, width)]


def _levels(status: scheduler_pb2.StatusResponse, width: int) -> list[str]:
    """Return the gap between siblings of each level beside the bound, which is the same at all levels of a worker."""
    members = status.cluster.members
    rows = [Level(member, each.level, each.gap) for member in members for each in member.load.levels]
    return table(LEVELS, rows, width) if rows else []


def _tenants(status: scheduler_pb2.StatusResponse, width: int) -> list[str]:
    """Return each tenant's service and the number of its users; nothing where there is one tenant."""
    sums = client_sums.tenants(status)
    return table(TENANTS, _waiting_first(sums), width) if len(sums) > 1 else []


def _users(status: scheduler_pb2.StatusResponse, width: int) -> list[str]:
    sums = client_sums.users(status)
    head = "balance by worker"
    balances = max([len(head), *(len(_balances(row)) for row in sums)])
    columns: Sequence[Column[ClientSum]] = [
        Column("user", 18, lambda row: row.name, is_text=True),
        *SUMS,
        Column(head, balances, _balances, is_text=True, rank=2),
    ]
    return table(columns, _waiting_first(sums), width)


def _balances(user: ClientSum) -> str:
    return ", ".join(f"{worker} {balance:,.0f}" for worker, balance in user.balances)


def _evicted(status: scheduler_pb2.StatusResponse, width: int) -> list[str]:
    """Return the tenants for which most pages were evicted, and whose these were; nothing before the first eviction."""
    rows = evictions(status.cluster.members)[:MOST_EVICTIONS]
    return table(EVICTED, rows, width) if rows else []


def _waiting_first(sums: Sequence[ClientSum]) -> list[ClientSum]:
    """Return those with most waiting requests first, then those with least service: whom fairness is about."""
    return sorted(sums, key=lambda each: (-each.waiting, each.service, each.name))


def _apps(gateways: Sequence[throttling_pb2.AccountResponse], width: int) -> list[str]:
    totals: dict[str, Counter[str]] = {}
    for account in (account for gateway in gateways for account in gateway.apps):
        sums = totals.setdefault(account.app, Counter())
        sums.update({name: getattr(account, name) for name in OUTCOMES})
    lines = table(APPS, sorted(totals.items()), width)
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


def _predictions(gateways: list[throttling_pb2.AccountResponse]) -> list[str]:
    """Return a line that says how good the predictions of calls' waits were; none before the first."""
    total = sum(gateway.predictions for gateway in gateways)
    close = sum(gateway.close_predictions for gateway in gateways)
    return [f"predicted waits: {close / total:.0%} of {total:,} within 25 % or 200 ms"] if total else []

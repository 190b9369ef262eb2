"""`fairlead status`: members, their load, and each user's service."""

import argparse

from cli import admin
from fairlead.v1 import scheduler_pb2


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("status", help="members, load and per-user service")
    admin.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print two tables; raises a FairleadError when the scheduler cannot be asked."""
    with admin.leader(args) as (_, status):
        print("\n".join([*_members(status), "", *_users(status)]))
    return 0


def _members(status: scheduler_pb2.StatusResponse) -> list[str]:
    overloaded = {pool.model for pool in status.cluster.pools if pool.overloaded}
    row = "{:<16} {:<24} {:<11} {:>7} {:>7} {:>13} {:>8} {:>17}  {}"
    lines = [f"global policy: {status.policy}"]
    lines.append(
        row.format("worker", "model", "policy", "running", "waiting", "KV tokens", "step ms", "gap/bound", "state")
    )
    for member in status.cluster.members:
        model, load = member.model, member.load
        state = "draining" if load.draining else "overloaded" if model.name in overloaded else "serving"
        used, step = f"{load.kv_tokens_used}/{model.kv_tokens}", f"{load.step_seconds * 1e3:.1f}"
        bound = f"{model.fairness_bound:,.0f}" if model.fairness_bound else "-"
        gap = f"{load.fairness_gap:,.0f}/{bound}"
        figures = (load.running, load.waiting, used, step, gap, state)
        lines.append(row.format(member.worker, model.name, model.policy, *figures))
    return lines


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

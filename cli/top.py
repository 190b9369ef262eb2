"""`fairlead top`: users and workers, live."""

import argparse
import itertools
import time
from dataclasses import dataclass, field

from cli import admin
from fairlead.metrics import jain_index
from fairlead.v1 import scheduler_pb2

CLEAR = "\x1b[H\x1b[2J"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("top", help="users, their balances, workers, queues and caches, live")
    admin.add_options(parser)
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="(default: %(default)s)")
    parser.add_argument("--frames", type=int, help="end after so many (default: at Ctrl-C)")
    parser.add_argument("--users", type=int, default=20, help="most users shown, the most active first")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a frame per period; raises a FairleadError when the scheduler cannot be asked."""
    earlier, then = None, 0.0
    for number in itertools.count(1):
        with admin.leader(args) as (_, status):
            now = time.monotonic()
        print(CLEAR + "\n".join(frame(status, earlier, now - then, args.users)), flush=True)
        if number == args.frames:
            return 0
        earlier, then = status, now
        time.sleep(args.every)
    return 0


@dataclass(slots=True)
class User:
    """One client over all workers."""

    service: float = 0.0
    weighted: float = 0.0
    waiting: int = 0
    running: int = 0
    balances: list[float] = field(default_factory=list)


def frame(
    status: scheduler_pb2.StatusResponse,
    earlier: scheduler_pb2.StatusResponse | None,
    seconds: float,
    most_users: int,
) -> list[str]:
    """The screen; rates are over the `seconds` since `earlier`."""
    users = _users(status)
    before = _users(earlier) if earlier is not None else users
    gained = {name: user.service - before.get(name, User()).service for name, user in users.items()}
    return [*_summary(status, users), "", *_workers(status), "", *_table(users, gained, seconds, most_users)]


def _summary(status: scheduler_pb2.StatusResponse, users: dict[str, User]) -> list[str]:
    waiting = [user.weighted for user in users.values() if user.waiting]
    jain = f"{jain_index(waiting):.3f}" if len(waiting) > 1 else "-"
    overloaded = [pool.model for pool in status.cluster.pools if pool.overloaded]
    return [
        f"{len(status.cluster.members)} workers, {status.policy}; {status.clients} users, {len(waiting)} backlogged, "
        f"their Jain index {jain}; overloaded: {', '.join(overloaded) or 'none'}"
    ]


def _workers(status: scheduler_pb2.StatusResponse) -> list[str]:
    row = "{:<20} {:<20} {:>8} {:>8} {:>7} {:>7} {:>9} {:>9} {:>12} {:<10}  {}"
    heads = ("WORKER", "MODEL", "RUNNING", "WAITING", "KV", "HITS", "QUEUE s", "STEP ms", "GAP/BOUND", "ADMISSION")
    lines = [row.format(*heads, "STATE")]
    for member in status.cluster.members:
        model, load = member.model, member.load
        seen = load.prompt_tokens
        figures = (
            load.running,
            load.waiting,
            f"{load.kv_tokens_used / model.kv_tokens:.0%}",
            f"{load.cached_tokens / seen:.0%}" if seen else "-",
            f"{load.queue_seconds:.2f}",
            f"{load.step_seconds * 1e3:.1f}",
            f"{load.fairness_gap / load.fairness_bound:.1%}" if load.fairness_bound else "-",
            model.admission,
        )
        lines.append(row.format(member.worker, model.name, *figures, "draining" if load.draining else "serving"))
    return lines


def _table(users: dict[str, User], gained: dict[str, float], seconds: float, most: int) -> list[str]:
    row = "{:<32} {:>9} {:>12} {:>14} {:>8} {:>8}  {}"
    lines = [row.format("USER", "SHARE", "SERVICE/s", "SERVICE", "WAITING", "RUNNING", "LEAST BALANCE")]
    total = sum(gained.values())
    ranked = sorted(users, key=lambda name: (-gained[name], -users[name].waiting, name))
    for name in ranked[:most]:
        user = users[name]
        share = f"{gained[name] / total:.1%}" if total else "-"
        rate = f"{gained[name] / seconds:,.0f}"
        least = f"{min(user.balances):,.0f}"
        lines.append(row.format(name, share, rate, f"{user.service:,.0f}", user.waiting, user.running, least))
    if len(ranked) > most:
        lines.append(f"and {len(ranked) - most} more")
    return lines


def _users(status: scheduler_pb2.StatusResponse) -> dict[str, User]:
    users: dict[str, User] = {}
    for worker in status.services:
        for client in worker.clients:
            user = users.setdefault(client.client, User())
            user.service += client.service
            user.weighted += client.weighted_service
            user.waiting += client.waiting
            user.running += client.running
            user.balances.append(client.balance)
    return users

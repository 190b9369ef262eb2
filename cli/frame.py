"""The content of one frame of `fairlead top`: the cluster at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cli import bound
from cli.screen import Line, Style
from cli.table import Column, bar, cut, table
from fairlead.v1 import scheduler_pb2
from serving.metrics import jain_index
from serving.wire import served_models

BAR = 10  # characters


@dataclass(slots=True)
class ClientShare:
    """One client over all workers: `gained` is its service per second, `share` its part of the service of all
    clients."""

    name: str
    service: float = 0.0
    weighted: float = 0.0
    waiting: int = 0
    running: int = 0
    balances: list[float] = field(default_factory=list)
    gained: float = 0.0
    share: float = 0.0


Member = scheduler_pb2.Member
WORKER_COLUMNS: Sequence[Column[Member]] = (
    Column("WORKER", 10, lambda member: member.worker, is_text=True),
    Column("MODEL", 22, lambda member: ",".join(model.name for model in served_models(member)), is_text=True, rank=3),
    Column("RUN", 4, lambda member: str(member.load.running)),
    Column("WAIT", 5, lambda member: str(member.load.waiting)),
    Column("KV", BAR + 5, lambda member: _kv(member), is_text=True),
    Column("HITS", 5, lambda member: _hits(member.load)),
    Column("QUEUE s", 7, lambda member: f"{member.load.queue_seconds:.2f}"),
    Column("STEP ms", 7, lambda member: f"{member.load.step_seconds * 1e3:.1f}", rank=1),
    Column("BOUND s", 7, lambda member: bound.seconds(member.load)),
    Column("GAP/BOUND", 9, lambda member: bound.part(member.load)),
    Column("ADMISSION", 10, lambda member: member.model.admission, is_text=True, rank=2),
    Column("STATE", 8, lambda member: _state(member), is_text=True),
)
USER_COLUMNS: Sequence[Column[ClientShare]] = (
    Column("USER", 18, lambda user: user.name, is_text=True),
    Column("SHARE", 6, lambda user: f"{user.share:.1%}" if user.share else "-"),
    Column("SERVICE/s", 9, lambda user: f"{user.gained:,.0f}"),
    Column("SERVICE", 12, lambda user: f"{user.service:,.0f}"),
    Column("WAIT", 5, lambda user: str(user.waiting)),
    Column("RUN", 4, lambda user: str(user.running)),
    Column("LEAST BALANCE", 13, lambda user: f"{min(user.balances):,.0f}"),
    Column("", BAR, lambda user: bar(user.share, BAR), is_text=True, rank=1),
)


def frame(
    status: scheduler_pb2.StatusResponse,
    earlier: scheduler_pb2.StatusResponse,
    seconds: float,
    most_users: int,
    width: int,
) -> list[Line]:
    """Return the lines of a frame. Rates are over the `seconds` since `earlier`; with 0 seconds there are none."""
    users = _users(status)
    before = {user.name: user.service for user in _users(earlier)}
    for user in users:
        user.gained = (user.service - before.get(user.name, 0.0)) / seconds if seconds else 0.0
    total = sum(user.gained for user in users)
    for user in users:
        user.share = user.gained / total if total else 0.0
    ranked = sorted(users, key=lambda user: (-user.gained, -user.waiting, user.name))
    shown = ranked[:most_users]
    heads, *rows = table(WORKER_COLUMNS, status.cluster.members, width)
    user_heads, *user_rows = table(USER_COLUMNS, shown, width)
    more = [(f"and {len(ranked) - most_users} more", Style.DIM)] if len(ranked) > most_users else []
    return [
        (cut(_summary(status, users), width), Style.PLAIN),
        ("", Style.PLAIN),
        (heads, Style.BOLD),
        *((row, _worker_style(member)) for row, member in zip(rows, status.cluster.members, strict=True)),
        ("", Style.PLAIN),
        (user_heads, Style.BOLD),
        *((row, Style.YELLOW if user.waiting else Style.PLAIN) for row, user in zip(user_rows, shown, strict=True)),
        *more,
    ]


def _summary(status: scheduler_pb2.StatusResponse, users: Sequence[ClientShare]) -> str:
    waiting = [user.weighted for user in users if user.waiting]
    jain = f", their Jain index {jain_index(waiting):.3f}" if len(waiting) > 1 else ""
    overloaded = [pool.model for pool in status.cluster.pools if pool.overloaded]
    trouble = f"; overloaded: {', '.join(overloaded)}" if overloaded else ""
    workers = len(status.cluster.members)
    return f"{workers} workers, {status.policy}; {status.clients} users, {len(waiting)} backlogged{jain}{trouble}"


def _worker_style(member: Member) -> Style:
    return Style.DIM if member.load.draining else Style.PLAIN


def _kv(member: Member) -> str:
    used = member.load.kv_tokens_used / member.model.kv_tokens
    return f"{bar(used, BAR):.<{BAR}} {used:.0%}"


def _hits(load: scheduler_pb2.Load) -> str:
    return f"{load.cached_tokens / load.prompt_tokens:.0%}" if load.prompt_tokens else "-"


def _state(member: Member) -> str:
    return "draining" if member.load.draining else "serving"


def _users(status: scheduler_pb2.StatusResponse) -> list[ClientShare]:
    users: dict[str, ClientShare] = {}
    for worker in status.services:
        for client in worker.clients:
            user = users.setdefault(client.client, ClientShare(client.client))
            user.service += client.service
            user.weighted += client.weighted_service
            user.waiting += client.waiting
            user.running += client.running
            user.balances.append(client.balance)
    return list(users.values())

"""The content of one frame of `fairlead top`: the cluster at one moment."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cli import bound, client_sums
from cli.client_sums import ClientSum
from cli.screen import Line, Style
from cli.table import Column, bar, cut, table
from fairlead.v1 import scheduler_pb2
from serving.statistics import jain_index

BAR = 10  # characters
MOST_TENANTS = 8  # rows


class ClientShare(NamedTuple):
    """A user or a tenant: `gained` is its service per second, `share` its part of the service of all."""

    sums: ClientSum
    gained: float
    share: float


Member = scheduler_pb2.Member
WORKER_COLUMNS: Sequence[Column[Member]] = (
    Column("WORKER", 10, lambda member: member.worker, is_text=True),
    Column("MODEL", 22, lambda member: ",".join(model.name for model in member.models), is_text=True, rank=3),
    Column("RUN", 4, lambda member: str(member.load.running)),
    Column("WAIT", 5, lambda member: str(member.load.waiting)),
    Column("KV", BAR + 5, lambda member: _kv(member), is_text=True),
    Column("HITS", 5, lambda member: _hits(member.load)),
    Column("QUEUE s", 7, lambda member: f"{member.load.queue_seconds:.2f}"),
    Column("STEP ms", 7, lambda member: f"{member.load.step_seconds * 1e3:.1f}", rank=1),
    Column("BOUND s", 7, lambda member: bound.seconds(member.load)),
    Column("GAP/BOUND", 9, lambda member: bound.part(member.load)),
    Column("TENANTS", 7, lambda member: bound.level_part(member.load, "tenant"), rank=5),
    Column("USERS", 6, lambda member: bound.level_part(member.load, "user"), rank=6),
    Column("INTERACTIONS", 12, lambda member: bound.level_part(member.load, "interaction"), rank=7),
    Column("ADMISSION", 10, lambda member: member.model.admission, is_text=True, rank=2),
    Column("STATE", 8, lambda member: _state(member), is_text=True),
)
SHARE_COLUMNS: Sequence[Column[ClientShare]] = (
    Column("SHARE", 6, lambda user: f"{user.share:.1%}" if user.share else "-"),
    Column("SERVICE/s", 9, lambda user: f"{user.gained:,.0f}"),
    Column("SERVICE", 12, lambda user: f"{user.sums.service:,.0f}"),
    Column("WAIT", 5, lambda user: str(user.sums.waiting)),
    Column("RUN", 4, lambda user: str(user.sums.running)),
    Column("PAGES/PART", 12, lambda user: str(user.sums.held or "-"), rank=2),
)
SHARE_BAR: Column[ClientShare] = Column("", BAR, lambda share: bar(share.share, BAR), is_text=True, rank=1)
TENANT_COLUMNS: Sequence[Column[ClientShare]] = (
    Column("TENANT", 18, lambda tenant: tenant.sums.name, is_text=True),
    *SHARE_COLUMNS,
    SHARE_BAR,
)
USER_COLUMNS: Sequence[Column[ClientShare]] = (
    Column("USER", 18, lambda user: user.sums.name, is_text=True),
    *SHARE_COLUMNS,
    Column("LEAST BALANCE", 13, lambda user: f"{min(balance for _, balance in user.sums.balances):,.0f}"),
    SHARE_BAR,
)


def frame(
    status: scheduler_pb2.StatusResponse,
    earlier: scheduler_pb2.StatusResponse,
    seconds: float,
    most_users: int,
    width: int,
) -> list[Line]:
    """Return the lines of a frame. Rates are over the `seconds` since `earlier`; with 0 seconds there are none."""
    users, tenants = client_sums.users(status), client_sums.tenants(status)
    heads, *rows = table(WORKER_COLUMNS, status.cluster.members, width)
    return [
        (cut(_summary(status, users, tenants), width), Style.PLAIN),
        ("", Style.PLAIN),
        (heads, Style.BOLD),
        *((row, _worker_style(member)) for row, member in zip(rows, status.cluster.members, strict=True)),
        ("", Style.PLAIN),
        *(
            _table(TENANT_COLUMNS, _ranked(tenants, client_sums.tenants(earlier), seconds), MOST_TENANTS, width)
            if len(tenants) > 1
            else ()
        ),
        *_table(USER_COLUMNS, _ranked(users, client_sums.users(earlier), seconds), most_users, width),
    ]


def _ranked(sums: Sequence[ClientSum], earlier: Sequence[ClientSum], seconds: float) -> list[ClientShare]:
    """Return what each gained per second and its part of all that was gained, those that gained most first."""
    before = {each.name: each.service for each in earlier}
    gained = [(each.service - before.get(each.name, 0.0)) / seconds if seconds else 0.0 for each in sums]
    total = sum(gained)
    shares = [ClientShare(each, gain, gain / total if total else 0.0) for each, gain in zip(sums, gained, strict=True)]
    return sorted(shares, key=lambda each: (-each.gained, -each.sums.waiting, each.sums.name))


def _table(
    columns: Sequence[Column[ClientShare]], ranked: Sequence[ClientShare], most: int, width: int
) -> Iterator[Line]:
    """Yield a table of the first `most` shares, and the number of the others."""
    shown = ranked[:most]
    heads, *rows = table(columns, shown, width)
    yield heads, Style.BOLD
    yield from (
        (row, Style.YELLOW if each.sums.waiting else Style.PLAIN) for row, each in zip(rows, shown, strict=True)
    )
    if len(ranked) > most:
        yield f"and {len(ranked) - most} more", Style.DIM


def _summary(status: scheduler_pb2.StatusResponse, users: Sequence[ClientSum], tenants: Sequence[ClientSum]) -> str:
    """Return the first line. The Jain index is that of siblings: of tenants where workers are fair among tenants."""
    has_tenants = any(level.level == "tenant" for member in status.cluster.members for level in member.load.levels)
    siblings, whose = (tenants, "the tenants'") if has_tenants and len(tenants) > 1 else (users, "their")
    waiting = [each.weighted for each in siblings if each.waiting]
    jain = f", {whose} Jain index {jain_index(waiting):.3f}" if len(waiting) > 1 else ""
    overloaded = [pool.model for pool in status.cluster.pools if pool.overloaded]
    trouble = f"; overloaded: {', '.join(overloaded)}" if overloaded else ""
    workers, backlogged = len(status.cluster.members), sum(user.waiting > 0 for user in users)
    return f"{workers} workers, {status.policy}; {status.clients} users, {backlogged} backlogged{jain}{trouble}"


def _worker_style(member: Member) -> Style:
    return Style.DIM if member.load.draining else Style.PLAIN


def _kv(member: Member) -> str:
    used = member.load.kv_tokens_used / member.model.kv_tokens
    return f"{bar(used, BAR):.<{BAR}} {used:.0%}"


def _hits(load: scheduler_pb2.Load) -> str:
    return f"{load.cached_tokens / load.prompt_tokens:.0%}" if load.prompt_tokens else "-"


def _state(member: Member) -> str:
    return "draining" if member.load.draining else "serving"

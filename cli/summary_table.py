"""Tables of configurations and clients for the screen."""

import math
import shutil
from collections.abc import Sequence

from cli.table import Column, table
from simulation.what_if.clients import ClientRow
from simulation.what_if.summary import Summary

NO_TERMINAL = 160, 24  # columns and lines, without a terminal
MOST_CLIENTS = 12
FEWEST_CALLS = 50  # on which a percentile or a mean should rest

LONGEST_NAME = 44  # characters, for which less important columns make room: names differ at their ends
FIGURES: tuple[Column[Summary], ...] = (
    Column("slowdown", 8, lambda s: times(s.of_clients)),
    Column("slowdown p99", 12, lambda s: times(s.judged.slowdown_p99), rank=2),
    Column("slowdown mean", 13, lambda s: times(s.judged.slowdown_mean), rank=2),
    Column("TTFT mean s", 11, lambda s: _seconds(s.judged.ttft_mean)),
    Column("TTFT p99 s", 10, lambda s: _seconds(s.judged.ttft_p99), rank=1),
    Column("latency p99 s", 13, lambda s: _seconds(s.judged.latency_p99), rank=6),
    Column("above: TTFT mean s", 18, lambda s: _above(s, s.above.ttft_mean), rank=3),
    Column("service/s", 9, lambda s: f"{s.service:,.0f}"),
    Column("tokens/s", 8, lambda s: f"{s.tokens:,.0f}", rank=7),
    Column("hit rate", 8, lambda s: f"{s.hits:.0%}", rank=4),
    Column("Jain", 5, lambda s: f"{s.jain:.3f}", rank=5),
    Column("gap", 7, lambda s: f"{s.gap:,.0f}", rank=8),
    Column("bound", 7, lambda s: "none" if s.bound is None else f"{s.bound:,.0f}", rank=9),
    Column("bound s", 7, lambda s: f"{s.bound / s.service:,.0f}" if s.bound and s.service else "-", rank=9),
    Column("refused", 7, lambda s: f"{s.refused:,}", rank=10),
)
CLIENTS: tuple[Column[ClientRow], ...] = (
    Column("client", 12, lambda c: c.client, is_text=True),
    Column("calls", 6, lambda c: f"{c.calls:,}"),
    Column("answered", 8, lambda c: f"{c.answered:,}", rank=4),
    Column("asked", 9, lambda c: f"{c.asked:,.0f}"),
    Column("within share", 12, lambda c: f"{c.within:.0%}"),
    Column("slowdown p99", 12, lambda c: times(c.waits.slowdown_p99)),
    Column("slowdown mean", 13, lambda c: times(c.waits.slowdown_mean)),
    Column("TTFT mean s", 11, lambda c: _seconds(c.waits.ttft_mean), rank=1),
    Column("TTFT p99 s", 10, lambda c: _seconds(c.waits.ttft_p99), rank=2),
    Column("latency p99 s", 13, lambda c: _seconds(c.waits.latency_p99), rank=3),
)


def summary_table(summaries: Sequence[Summary]) -> str:
    """Return a row per configuration and an explanation of the columns."""
    longest = min(LONGEST_NAME, max((len(s.name) for s in summaries), default=0))
    name: Column[Summary] = Column("configuration", max(13, longest), lambda s: s.name, is_text=True)
    lines = table([name, *FIGURES], summaries, _width())
    who = "within their client's fair share" if any(s.within.calls for s in summaries) else "of all clients"
    lines += [
        "slowdown: times as long as alone with the fair share, of all calls of a client; the mean over clients;",
        f"slowdown p99 and mean, TTFT, latency: of calls {who}; above: of calls beyond it;",
        "Jain: index of service received over the fair share of what was asked for;",
        "gap and bound: cost units; bound s: the same in seconds of the run's service",
    ]
    if (least := min((s.judged.calls for s in summaries), default=FEWEST_CALLS)) < FEWEST_CALLS:
        lines.append(f"p99 and means of calls rest on {least} calls: fewer than {FEWEST_CALLS} say little")
    if unbounded := [s.name for s in summaries if s.bound is None]:
        lines.append(f"bound none: no bound on the gap is proved for {', '.join(unbounded)}")
    return "\n".join(lines)


def clients_table(name: str, clients: Sequence[ClientRow]) -> str:
    """Return the clients that asked for most under configuration `name`, and the number of the others."""
    shown = clients[:MOST_CLIENTS]
    lines = [f"clients under {name}, those that asked for most first (asked: cost units):"]
    lines += table(CLIENTS, shown, _width())
    if len(clients) > len(shown):
        lines.append(f"and {len(clients) - len(shown):,} more: see clients.csv")
    return "\n".join(lines)


def _width() -> int:
    return shutil.get_terminal_size(NO_TERMINAL).columns


def _above(summary: Summary, value: float) -> str:
    return _seconds(value) if summary.above.calls else "no calls"


def _seconds(value: float) -> str:
    return "never" if value == math.inf else f"{value:,.3f}" if value < 10 else f"{value:,.0f}"


def times(value: float) -> str:
    """Format a slowdown; an infinite one is "never"."""
    return "never" if value == math.inf else f"{value:,.2f}"

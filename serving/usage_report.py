"""The report of what calls used: sums by any of day, tenant, user, app and model, and each one's share.

The share is the part of a day's cost. The idle share is the part of the tenant's fair share of that day, by the weights
of the tenants that made calls, which the tenant did not use.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import NamedTuple

from fairlead.errors import InvalidRequest
from serving.spreadsheet import inert

KEYS = ("day", "tenant", "user", "app", "model")
SUMS = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "micro_cost", "nano_money", "waited_us")
COLUMNS = (*SUMS[:4], "cost", "money", "share", "idle_share", "waited_seconds")
Cell = str | int | float


def first_day(text: str) -> str:
    """Return `text`, the first day of a report, or empty for all days; raise InvalidRequest for anything else."""
    with suppress(ValueError):
        if not text or date.fromisoformat(text).isoformat() == text:
            return text
    raise InvalidRequest(f"expected a day of UTC, as 2026-11-26, got {text[:32]!r}", "since")


class UsageRow(NamedTuple):
    """What the calls of one day, tenant, user, app and model used; see throttling.proto."""

    day: str
    tenant: str
    user: str
    app: str
    model: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    micro_cost: int
    nano_money: int
    waited_us: int
    weight: float


def usage_report(rows: Iterable[UsageRow], by: Sequence[str] = KEYS) -> list[Mapping[str, Cell]]:
    """Return a mapping for each combination of `by`, which are among KEYS, in their order."""
    rows = list(rows)
    days: Counter[str] = Counter()
    tenants: Counter[tuple[str, str]] = Counter()
    weights: dict[str, dict[str, float]] = {}
    sums: dict[tuple[str, ...], Counter[str]] = {}
    members: dict[tuple[str, ...], dict[tuple[str, str], None]] = {}
    for row in rows:
        days[row.day] += row.micro_cost
        tenants[row.day, row.tenant] += row.micro_cost
        weights.setdefault(row.day, {})[row.tenant] = row.weight
        key = tuple(str(getattr(row, name)) for name in by)
        sums.setdefault(key, Counter()).update({name: getattr(row, name) for name in SUMS})
        members.setdefault(key, {})[row.day, row.tenant] = None
    idle = {
        (day, tenant): max(0.0, 1 - tenants[day, tenant] * sum(of_day.values()) / (weight * max(1, days[day])))
        for day, of_day in weights.items()
        for tenant, weight in of_day.items()
    }
    found: list[Mapping[str, Cell]] = []
    for key in sorted(sums):
        total, belongs = sums[key], members[key]
        of_days = sum(days[day] for day in dict.fromkeys(day for day, _ in belongs))
        found.append(
            dict(zip(by, key, strict=True))
            | {name: total[name] for name in SUMS[:4]}
            | {
                "cost": total["micro_cost"] / 1e6,
                "money": total["nano_money"] / 1e9,
                "share": round(total["micro_cost"] / max(1, of_days), 4),
                "idle_share": round(sum(idle[each] for each in belongs) / len(belongs), 4),
                "waited_seconds": total["waited_us"] / 1e6,
            }
        )
    return found


def as_csv(report: Sequence[Mapping[str, Cell]], by: Sequence[str] = KEYS) -> str:
    """Return the report as CSV (RFC 4180) with a heading."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*by, *COLUMNS])
    writer.writeheader()
    writer.writerows({name: inert(value) for name, value in row.items()} for row in report)
    return text.getvalue()

"""Windows of the calendar: days, weeks and months of a time zone, each of which begins its count at 0."""

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache

SECONDS = {"day": 25 * 3600, "week": 7 * 86_400 + 3600, "month": 31 * 86_400 + 3600}  # the longest, in local time


@dataclass(frozen=True, slots=True)
class CalendarPeriod:
    """The `unit` in which a time is; a slot is one of them, and its number its beginning in Unix seconds."""

    unit: str  # day, week (from Monday on) or month
    zone: tzinfo
    is_calendar: bool = True

    @property
    def name(self) -> str:
        return f"calendar_{self.unit}"

    @property
    def seconds(self) -> float:
        return SECONDS[self.unit]

    def slot(self, at: float) -> int:
        return _bounds(self.unit, self.zone, int(at // 900))[0]

    def first(self, at: float) -> int:
        return self.slot(at)

    def leaves_at(self, slot: int) -> float:
        return _bounds(self.unit, self.zone, slot // 900)[1]


@lru_cache(maxsize=1024)
def _bounds(unit: str, zone: tzinfo, quarter: int) -> tuple[int, int]:
    """Return the beginning and the end of the period in which a quarter of an hour is; no zone divides a quarter."""
    local = datetime.fromtimestamp(quarter * 900, zone)
    day = datetime(local.year, local.month, local.day)
    if unit == "day":
        begin, end = day, day + timedelta(days=1)
    elif unit == "week":
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    else:
        begin = day.replace(day=1)
        end = (begin + timedelta(days=31)).replace(day=1)
    return int(begin.replace(tzinfo=zone).timestamp()), int(end.replace(tzinfo=zone).timestamp())

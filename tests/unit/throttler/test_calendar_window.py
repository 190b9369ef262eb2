"""Days, weeks and months of time zones, also those of 23 and 25 hours."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.budget_names import budget_of, is_budget
from throttler.calendar_window import SECONDS, CalendarPeriod

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago")
UNITS = tuple(SECONDS)


def label(unit: str, at: float, zone: ZoneInfo) -> tuple[int, ...]:
    """The day, the week or the month in which a time is, as a calendar on the wall says."""
    local = datetime.fromtimestamp(at, zone)
    monday = local.date() - timedelta(days=local.weekday())
    day = {"day": local.date(), "week": monday, "month": local.date().replace(day=1)}[unit]
    return (day.year, day.month, day.day)


@given(st.sampled_from(UNITS), st.sampled_from(ZONES), st.integers(1_600_000_000, 1_900_000_000))
def test_a_slot_is_what_the_calendar_says(unit: str, name: str, at: int) -> None:
    zone = ZoneInfo(name)
    window = CalendarPeriod(unit, zone)
    begin, end = window.slot(at), window.leaves_at(window.slot(at))
    assert begin <= at < end
    assert window.slot(begin) == window.slot(end - 1) == window.first(at) == begin
    assert window.slot(end) == end
    assert label(unit, begin, zone) == label(unit, at, zone) == label(unit, end - 1, zone)
    assert label(unit, begin - 1, zone) < label(unit, at, zone) < label(unit, end, zone)
    assert end - begin <= window.seconds


@pytest.mark.parametrize(
    ("at", "unit", "hours"),
    [
        ("2026-03-29T12:00", "day", 23),
        ("2026-10-25T00:30", "day", 25),
        ("2026-10-23T00:30", "week", 7 * 24 + 1),
        ("2024-02-29T23:59", "month", 29 * 24),
    ],
)
def test_berlin(at: str, unit: str, hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    window = CalendarPeriod(unit, zone)
    slot = window.slot(datetime.fromisoformat(at).replace(tzinfo=zone).timestamp())
    assert window.leaves_at(slot) - slot == hours * 3600


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("user_tokens_per_second", True),
        ("key_cost_per_calendar_week", True),
        ("interaction_money", True),
        ("interaction_money_per_day", False),
        ("user_tokens", False),
        ("user_tokens_per_calendar_hour", False),
        ("user_per_minute", False),
    ],
)
def test_names_of_budgets(name: str, is_one: bool) -> None:
    assert is_budget(name) == is_one
    if is_one:
        assert budget_of(name, 3).name == name
    else:
        with pytest.raises(ValueError, match=name):
            budget_of(name, 3)

"""Budgets by the names that they have in the profiles file, as `user_tokens_per_day`."""

import re
from datetime import UTC, tzinfo

from throttler.calendar_window import SECONDS as PERIODS
from throttler.calendar_window import CalendarPeriod
from throttler.core.budget import LIFETIME, MEASURES, NANO, PER, SECONDS, Budget, BudgetWindow, SlidingSpan

EXAMPLES = "user_tokens_per_day, tenant_money_per_calendar_month or interaction_tokens"
_NAME = re.compile(
    rf"({'|'.join(PER)})_({'|'.join(MEASURES)})(?:_per_(?:({'|'.join(SECONDS)})|calendar_({'|'.join(PERIODS)})))?"
)


def is_budget(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and (found[1] == "interaction") == (found[3] is None and found[4] is None)


def budget_of(name: str, limit: float, zone: tzinfo = UTC) -> Budget:
    """Return the budget `name`, whose limit of money is in units of the currency; raise ValueError."""
    found = _NAME.fullmatch(name)
    if found is None or not is_budget(name):
        raise ValueError(f"{name}: no budget; expected a name such as {EXAMPLES}")
    per, measure, span, period = found.groups()
    window: BudgetWindow = LIFETIME
    if span:
        window = SlidingSpan(span, SECONDS[span])
    elif period:
        window = CalendarPeriod(period, zone)
    return Budget(per, measure, window, round(limit * NANO) if measure == "money" else int(limit))

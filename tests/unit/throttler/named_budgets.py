"""Budgets as tests write them: by the names that files of profiles have."""

from throttler.budget_names import budget_of
from throttler.core.budget import Budget


def budgets_of(**limits: float) -> tuple[Budget, ...]:
    """The budgets of these names and limits."""
    return tuple(budget_of(name, limit) for name, limit in limits.items())

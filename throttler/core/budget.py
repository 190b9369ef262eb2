"""Budgets: limits on what calls use in a window, in tokens, cost units or money.

A budget belongs to each user, app, tenant, key or interaction that it is `per`. Its name says all but the value:
`user_tokens_per_minute`, `tenant_money_per_calendar_month`, `interaction_tokens`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

SLICES = 64
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "month": 30 * 86_400}
MOST_RATE_SECONDS = 60  # a budget of a longer window holds at all times; one of a shorter is a rate
NANO = 1_000_000_000  # amounts of money are counted in billionths
PER = ("user", "app", "tenant", "key", "interaction")
MEASURES = ("tokens", "cost", "money")


class TokenUse(NamedTuple):
    """What a call uses of budgets: its tokens, their cost in whole cost units, and their price in billionths."""

    tokens: int
    cost: int
    money: int = 0


class BudgetWindow(Protocol):
    """The slots of time in which amounts count; all amounts of a slot leave the window together.

    Times are Unix seconds. Slots are numbers that never fall as time passes.
    """

    @property
    def name(self) -> str:
        """The end of the budget's name."""

    @property
    def seconds(self) -> float:
        """The duration of the window, of calendar months the longest."""

    @property
    def is_calendar(self) -> bool:
        """Whether the window follows the wall clock, also when that is set."""

    def slot(self, at: float) -> int:
        """Return the slot in which an amount counts that is booked at this time."""

    def first(self, at: float) -> int:
        """Return the oldest slot that is in the window at this time."""

    def leaves_at(self, slot: int) -> float:
        """Return the time from which a slot is no longer in the window."""


@dataclass(frozen=True, slots=True)
class SlidingSpan:
    """The last `seconds`, divided into SLICES.

    An amount is counted for at most 1 / SLICES of the window too long and never too short, so no true sliding window
    holds more than the limit, and an account takes the memory of SLICES numbers however many calls it makes.
    See BudgetWindow.
    """

    name: str
    seconds: float
    is_calendar: bool = False

    def slot(self, at: float) -> int:
        return int(at * SLICES // self.seconds)

    def first(self, at: float) -> int:
        return self.slot(at) - SLICES

    def leaves_at(self, slot: int) -> float:
        return (slot + 1) * self.seconds / SLICES + self.seconds


# An interaction is over long before; its account ends with it, and this is when a forgotten one ends.
LIFETIME = SlidingSpan("interaction", SECONDS["day"])


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit in `measure` for each of those that it is `per`; the limit of money is in billionths."""

    per: str
    measure: str
    window: BudgetWindow
    limit: int

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise ValueError(f"{self.name}: must be positive, got {self.limit!r}")

    @property
    def name(self) -> str:
        """The name in the profiles file and in messages."""
        return f"{self.per}_{self.measure}" + ("" if self.per == "interaction" else f"_per_{self.window.name}")

    @property
    def is_rate(self) -> bool:
        """Whether it protects from overload, so that it holds when the limits on calls do."""
        return self.window.seconds <= MOST_RATE_SECONDS


class BudgetAccount(NamedTuple):
    """What counts towards one budget of one subject; the limit is that of all processes together."""

    key: str
    limit: int
    window: BudgetWindow


class BudgetDemand(NamedTuple):
    """What a call lacks: a lease of at least `amount` of the account."""

    account: BudgetAccount
    amount: int


def shown(measure: str, amount: int) -> str:
    """Return an amount as messages show it: money in units of the currency."""
    return f"{amount / NANO:.10g}" if measure == "money" else str(amount)

"""The budgets of callers: which a call has to fit into, and what it reserves and uses of them.

A call reserves what it is expected to need when it is decided. When its use is known, what it did not need is given
back, and what it needed beyond is booked. The calls admitted in any window therefore use at most the limit, and what
single calls needed beyond their reservations.

Budgets of more than a minute hold at all times. Those of a second or a minute are rates: they hold when the throttle
enforces the limits on calls. Neither refuses a call of an interaction in progress, up to kappa times the limits of its
user and its tenant; only the interaction's own budget does.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from fairlead.outcomes import Outcome
from serving.cost import MICRO, Cost
from throttler.core.budget import MEASURES, Budget, BudgetAccount, BudgetDemand, BudgetWindow, TokenUse, shown
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.profiles import Profiles
from throttler.core.throttle import MOST_CALLERS, Caller, Rejected, tightest
from throttler.core.windows import LimitStatus

UNITS = {"tokens": "tokens", "cost": "cost units", "money": "in money"}
OUTCOMES = {"app": Outcome.THROTTLED_APP, "tenant": Outcome.THROTTLED_TENANT}  # of all others THROTTLED_USER
HEADER = "x-fairlead-budget"  # of an answer: a budget of which little is left
WARNED_FROM = 0.8  # of a budget that is used


class BookedAmount(NamedTuple):
    """An amount in a slot of an account; the place of its measure in a TokenUse."""

    account: BudgetAccount
    measure: int
    slot: int


class Reservation(NamedTuple):
    """The reservation of a call: the amounts, and where they are booked."""

    use: TokenUse
    bookings: tuple[BookedAmount, ...]
    is_protected: bool  # no cap on protected calls is exceeded


UNRESERVED = Reservation(TokenUse(0, 0), (), is_protected=False)


class _Limit(NamedTuple):
    budget: Budget
    whose: str  # in messages
    account: BudgetAccount


class _Group(NamedTuple):
    """The limits of a caller in one measure and window, and the caps on its protected calls."""

    measure: int
    is_rate: bool
    is_own: bool  # the interaction's own, which protects nothing
    limits: tuple[_Limit, ...]
    caps: tuple[BudgetAccount, ...]


class Budgets:
    """The budgets in the profiles, and what is booked of them."""

    def __init__(self, profiles: Profiles, accounts: BudgetAccounts, cost: Cost) -> None:
        self.accounts = accounts
        self._cost = cost
        self.configure(profiles)

    def configure(self, profiles: Profiles) -> None:
        """Apply new budgets from now on; what is booked stays booked."""
        self._profiles = profiles
        self.are_set = profiles.has_budgets
        self._of_callers: dict[Caller, tuple[_Group, ...]] = {}

    def measured(
        self, prompt_tokens: int, output_tokens: int, system_tokens: int = 0, *, cached_tokens: int = 0, model: str = ""
    ) -> TokenUse:
        """Return the use of a call of `model`; system and cached tokens are among the prompt's.

        The cost is that of a prompt of which nothing is cached.
        """
        micro = self._cost.extend(prompt_tokens, system_tokens)
        micro += self._cost.decode(output_tokens, prompt_tokens, 0)
        money = self._profiles.price(model).of(prompt_tokens - cached_tokens, cached_tokens, output_tokens)
        return TokenUse(prompt_tokens + output_tokens, math.ceil(micro / MICRO), money)

    def expected(self, app: str, stage: int, prompt_tokens: int, max_tokens: int, model: str = "") -> TokenUse:
        """Return what a call of `app` is expected to use; 0 prompt tokens or `max_tokens` are not known.

        The output is what the app's profile expects, or else `max_tokens`. Of a call of which nothing is known, the
        tokens of a call whose norm is 1 are expected.
        """
        prior = self._profiles.app(app).prior(stage)
        if prior is not None:
            prompt = prompt_tokens or math.ceil(prior.input + prior.system)
            output = min(math.ceil(prior.output) or max_tokens, max_tokens or math.ceil(prior.output))
            return self.measured(prompt, output, min(prompt, math.ceil(prior.system)), model=model)
        if prompt_tokens or max_tokens:
            return self.measured(prompt_tokens, max_tokens, model=model)
        return self.measured(math.ceil(self._profiles.reference_tokens), 0, model=model)

    def refusal(
        self,
        caller: Caller,
        use: TokenUse,
        protected: bool,
        now: float,
        *,
        interaction: InteractionKey | None = None,
        overloaded: bool = True,
        protects_from_rates: bool = True,
    ) -> Rejected | BudgetDemand | None:
        """Return how budgets that hold refuse a call, or the lease that it lacks; None if it goes on.

        `overloaded` means that rates hold as well, and `protects_from_rates` that they do so only for a time and refuse
        no protected call.
        """
        for group in self._groups(caller, interaction):
            if group.is_rate and not overloaded:
                continue
            amount, cap = use[group.measure], None
            if protected and not group.is_own and (protects_from_rates or not group.is_rate):
                cap = next((cap for cap in group.caps if not self.accounts.fits(cap, amount, now)), None)
                if cap is None:
                    continue
                if self.accounts.may_grow(cap, amount, now):
                    return BudgetDemand(cap, amount)
            for limit in group.limits:
                if self.accounts.fits(limit.account, amount, now):
                    continue
                if self.accounts.may_grow(limit.account, amount, now):
                    return BudgetDemand(limit.account, amount)
                passes = group.is_rate and protects_from_rates
                if amount > (cap or limit.account).limit and not passes:
                    return self._never_admitted(limit, amount, now)
                return self._rejected(limit, amount, now)
        return None

    def reserve(
        self,
        caller: Caller,
        use: TokenUse,
        protected: bool,
        now: float,
        interaction: InteractionKey | None = None,
        *,
        uses_rates: bool = True,
    ) -> Reservation:
        """Book what an admitted call is expected to use; what is beyond a rate does not count towards the next one.

        A call that does not use rates counts towards the other budgets only.
        """
        if not self.are_set:
            return UNRESERVED._replace(is_protected=protected)
        bookings, is_protected = [], protected
        for group in self._groups(caller, interaction):
            if group.is_rate and not uses_rates:
                continue
            amount = use[group.measure]
            booked: list[BudgetAccount] = []
            if protected:
                if all(self.accounts.used(cap, now) + amount <= cap.limit for cap in group.caps):
                    booked += group.caps
                else:
                    is_protected = False
            for limit in group.limits:
                booked.append(limit.account)
                if group.is_rate and self.accounts.used(limit.account, now) + amount > limit.account.limit:
                    break
            bookings += [
                BookedAmount(account, group.measure, self.accounts.book(account, amount, now)) for account in booked
            ]
        return Reservation(use, tuple(bookings), is_protected)

    def settle(self, reservation: Reservation, used: TokenUse, now: float) -> None:
        """Replace what a call reserved by what it used; to be called at most once for each reservation."""
        for account, measure, slot in reservation.bookings:
            amount, reserved = used[measure], reservation.use[measure]
            if amount < reserved:
                self.accounts.give_back(account, slot, reserved - amount, now)
            elif amount > reserved:
                self.accounts.book(account, amount - reserved, now)

    def status(self, caller: Caller, now: float) -> LimitStatus | None:
        """Return what is left of the caller's budget in tokens of which least is; None without such a budget."""
        return tightest(
            LimitStatus(
                account.limit, max(0, account.limit - self.accounts.used(account, now)), self._reset(limit, now)
            )
            for limit in self._limits(caller)
            if limit.budget.measure == "tokens"
            for account in [limit.account]
        )

    def warnings(self, caller: Caller, interaction: InteractionKey | None, now: float) -> list[str]:
        """Return for each budget of which WARNED_FROM is used its name, the part, and the seconds until it is free."""
        return [
            f"{limit.budget.name}={shown(limit.budget.measure, limit.account.limit)};"
            f"used={used / limit.account.limit:.0%};reset={self._reset(limit, now):.0f}"
            for limit in self._limits(caller, interaction)
            if not limit.budget.is_rate
            and (used := self.accounts.used(limit.account, now)) >= WARNED_FROM * limit.account.limit
        ]

    def closed(self, interaction: InteractionKey) -> None:
        """Forget the accounts of an interaction that has closed."""
        for group in self._of_interaction(interaction):
            for limit in group.limits:
                self.accounts.close(limit.account.key)

    def check_invariants(self) -> None:
        self.accounts.check_invariants()

    def _limits(self, caller: Caller, interaction: InteractionKey | None = None) -> Iterator[_Limit]:
        return (limit for group in self._groups(caller, interaction) for limit in group.limits)

    def _reset(self, limit: _Limit, now: float) -> float:
        return self.accounts.reset(limit.account, now)

    def _groups(self, caller: Caller, interaction: InteractionKey | None) -> tuple[_Group, ...]:
        groups = self._of_callers.get(caller)
        if groups is None:
            if len(self._of_callers) >= MOST_CALLERS:
                del self._of_callers[next(iter(self._of_callers))]
            groups = self._of_callers[caller] = tuple(self._groups_of(caller))
        return (*groups, *self._of_interaction(interaction)) if interaction is not None else groups

    def _groups_of(self, caller: Caller) -> Iterator[_Group]:
        """Yield the groups in the order of their measures, the shortest window first."""
        subjects = {"user": caller.client, "tenant": caller.tenant}
        if caller.app:
            subjects["app"] = f"{caller.tenant}/{caller.app}"
        if caller.key:
            subjects["key"] = caller.key
        whose = {
            "user": f"user {caller.client!r}",
            "key": f"key {caller.key!r}",
            "app": f"app {caller.app!r} of tenant {caller.tenant!r}",
            "tenant": f"tenant {caller.tenant!r}",
        }
        budgets: dict[tuple[int, float, str], list[Budget]] = {}
        for budget in self._profiles.budgets(caller.tenant, caller.app):
            if budget.per in subjects:
                place = MEASURES.index(budget.measure), budget.window.seconds, budget.window.name
                budgets.setdefault(place, []).append(budget)
        for (measure, _, _), group in sorted(budgets.items(), key=lambda item: item[0]):
            limits = [
                _Limit(budget, whose[per], _account(budget, per, subjects[per], budget.limit))
                for per in ("user", "key", "app", "tenant")
                for budget in group
                if budget.per == per
            ]
            kappa = self._profiles.limits.kappa
            caps = [
                _account(limit.budget, f"protected-{per}", subjects[per], kappa * limit.budget.limit)
                for limit in limits
                if (per := limit.budget.per) in ("user", "tenant")
            ]
            yield _Group(measure, group[0].is_rate, False, tuple(limits), tuple(caps))

    def _of_interaction(self, key: InteractionKey) -> Iterator[_Group]:
        for budget in self._profiles.interaction_budgets(key.app):
            account = _account(budget, "interaction", f"{key.client}/{key.app}/{key.id}", budget.limit)
            limit = _Limit(budget, f"interaction {key.id!r}", account)
            yield _Group(MEASURES.index(budget.measure), False, True, (limit,), ())

    def _rejected(self, limit: _Limit, amount: int, now: float) -> Rejected:
        budget, account = limit.budget, limit.account
        if budget.per == "interaction":
            wait, advice = self._profiles.limits.idle_ttl, "begin another interaction"
        else:
            wait = self.accounts.wait(account, amount, now)
            advice = f"retry in {wait:.1f} s"
        left = max(0, account.limit - self.accounts.used(account, now))
        if amount > left:
            need, obstacle = _need(limit, amount, "is over"), ""
        else:  # only a lease is lacking
            is_silent = self.accounts.is_cut_off(account, now)
            cause = "does not answer" if is_silent else "has lent it to other processes"
            need, obstacle = _need(limit, amount, "cannot use"), f", but the ledger {cause}"
        message = f"{need}, and {shown(budget.measure, left)} are left{obstacle}; {advice}"
        return Rejected(OUTCOMES.get(budget.per, Outcome.THROTTLED_USER), wait, message, account.limit)

    def _never_admitted(self, limit: _Limit, amount: int, now: float) -> Rejected:
        """Return the refusal of a call that no waiting helps: nobody is to repeat it."""
        wait = self.accounts.wait(limit.account, amount, now)
        message = f"{_need(limit, amount, 'is over')}, which is more than all of it; ask for fewer tokens"
        return Rejected(Outcome.REJECTED_INVALID, wait, message, limit.account.limit)


def _need(limit: _Limit, amount: int, why: str) -> str:
    budget, unit = limit.budget, UNITS[limit.budget.measure]
    refusal = f"{limit.whose} {why} {budget.name}={shown(budget.measure, limit.account.limit)}"
    return f"{refusal}: the call is expected to need {shown(budget.measure, amount)} {unit}"


def _account(budget: Budget, per: str, subject: str, limit: int) -> BudgetAccount:
    window: BudgetWindow = budget.window
    return BudgetAccount(f"{budget.measure}:{window.name}:{per}:{subject}", limit, window)

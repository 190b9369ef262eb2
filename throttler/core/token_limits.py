"""Limits in tokens per minute and in cost units per minute, of users, apps and tenants.

A call reserves what it is expected to need when it is decided. When its use is known, what it did not need is given
back, and what it needed beyond is booked. The calls admitted in any minute therefore use at most the limit, and what
single calls needed beyond their reservations. When limits hold, and which calls they do not refuse, is the throttle's
rule as for calls: under `oit` calls of interactions go on, up to kappa times their user's limit.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from serving.cost import MICRO, Cost
from throttler.core.caller_limits import CallerLimit, caps_of, limits_of
from throttler.core.profiles import Profiles
from throttler.core.quota import Quota, QuotaAccount, QuotaDemand
from throttler.core.throttle import WINDOW_SECONDS, Caller, LimitStatus, Rejected, tightest
from throttler.core.token_window import TokenWindow


class TokenUse(NamedTuple):
    """The use of limits in tokens by a call: its prompt and output tokens, and their cost in whole cost units."""

    tokens: int
    cost: int


class Reservation(NamedTuple):
    """The reservation of a call: the amounts, the slice of the window, and the accounts of tokens and of cost."""

    use: TokenUse
    slice: int
    accounts: tuple[tuple[QuotaAccount, ...], ...]
    is_protected: bool  # no cap on protected calls is exceeded


UNRESERVED = Reservation(TokenUse(0, 0), 0, ((), ()), is_protected=False)


class _Measure(NamedTuple):
    """The limits of a caller in one unit, and the caps on its protected calls."""

    name: str  # in the names of limits
    unit: str
    limits: list[CallerLimit]
    caps: list[QuotaAccount]


class TokenLimits:
    """The limits in tokens and cost units, and what is booked of them."""

    def __init__(self, profiles: Profiles, quota: Quota, cost: Cost, seconds: float = WINDOW_SECONDS) -> None:
        self.window = TokenWindow(seconds, quota)
        self._cost = cost
        self.configure(profiles)

    def configure(self, profiles: Profiles) -> None:
        """Apply new limits from now on; what is booked stays booked."""
        self._profiles = profiles
        limits, apps = profiles.limits, (profiles.default, *profiles.apps.values())
        of_users = limits.user_tokens_per_minute or limits.user_cost_per_minute
        of_tenants = limits.tenant_tokens_per_minute or limits.tenant_cost_per_minute
        of_apps = any(app.tokens_per_minute or app.cost_per_minute for app in apps)
        self._are_set = bool(of_users or of_tenants or of_apps)

    def measured(self, prompt_tokens: int, output_tokens: int, system_tokens: int = 0) -> TokenUse:
        """Return the use of a call with these tokens; `system_tokens` are among the prompt's."""
        micro = self._cost.extend(prompt_tokens, system_tokens)
        micro += self._cost.decode(output_tokens, prompt_tokens, 0)
        return TokenUse(prompt_tokens + output_tokens, math.ceil(micro / MICRO))

    def expected(self, app: str, stage: int, prompt_tokens: int, max_tokens: int) -> TokenUse:
        """Return what a call of `app` is expected to use; 0 prompt tokens or `max_tokens` are not known.

        The output is what the app's profile expects, or else `max_tokens`. Of a call of which nothing is known, the
        tokens of a call whose norm is 1 are expected. Without any limit nothing is.
        """
        if not self._are_set:
            return UNRESERVED.use
        prior = self._profiles.app(app).prior(stage)
        if prior is not None:
            prompt = prompt_tokens or math.ceil(prior.input + prior.system)
            output = min(math.ceil(prior.output) or max_tokens, max_tokens or math.ceil(prior.output))
            return self.measured(prompt, output, min(prompt, math.ceil(prior.system)))
        if prompt_tokens or max_tokens:
            return self.measured(prompt_tokens, max_tokens)
        return self.measured(math.ceil(self._profiles.reference_tokens), 0)

    def refusal(self, caller: Caller, use: TokenUse, protected: bool, now: float) -> Rejected | QuotaDemand | None:
        """Return how limits that hold refuse a call, or what it lacks of one that may grow; None if it goes on."""
        if not self._are_set:
            return None
        for measure, amount in zip(self._measures(caller), use, strict=True):
            if protected:
                cap = next((cap for cap in measure.caps if not self.window.fits(cap, amount, now)), None)
                if cap is None:
                    continue
                if self.window.may_grow(cap, amount, now):
                    return QuotaDemand(cap, amount)
            for limit in measure.limits:
                if self.window.fits(limit.account, amount, now):
                    continue
                if self.window.may_grow(limit.account, amount, now):
                    return QuotaDemand(limit.account, amount)
                return self._rejected(caller, measure, limit, amount, now)
        return None

    def reserve(self, caller: Caller, use: TokenUse, protected: bool, now: float) -> Reservation:
        """Book what an admitted call is expected to use; as for calls, see `throttler.core.caller_limits`."""
        if not self._are_set:
            return UNRESERVED._replace(is_protected=protected)
        accounts, is_protected, number = [], protected, 0
        for measure, amount in zip(self._measures(caller), use, strict=True):
            booked = measure.caps if protected else []
            if not all(self.window.fits(cap, amount, now) for cap in booked):
                booked, is_protected = [], False
            booked = booked + self._counting(measure.limits, amount, now)
            for account in booked:
                number = self.window.book(account, amount, now)
            accounts.append(tuple(booked))
        return Reservation(use, number, tuple(accounts), is_protected)

    def settle(self, reservation: Reservation, used: TokenUse, now: float) -> None:
        """Replace what a call reserved by what it used; to be called at most once for each reservation."""
        for accounts, reserved, amount in zip(reservation.accounts, reservation.use, used, strict=True):
            for account in accounts:
                if amount < reserved:
                    self.window.give_back(account, reservation.slice, reserved - amount, now)
                elif amount > reserved:
                    self.window.book(account, amount - reserved, now)

    def status(self, caller: Caller, now: float) -> LimitStatus | None:
        """Return what is left of the caller's limit in tokens of which least is; None without such a limit."""
        if not self._are_set:
            return None
        of_tokens, _ = self._measures(caller)
        return tightest(
            LimitStatus(limit, max(0, limit - self.window.used(key, now)), self.window.reset(key, now))
            for _, (key, limit) in of_tokens.limits
        )

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self.window.check_invariants()

    def _measures(self, caller: Caller) -> Iterator[_Measure]:
        limits, app = self._profiles.limits, self._profiles.app(caller.app)
        for name, unit, of_user, of_app, of_tenant in (
            (
                "tokens",
                "tokens",
                limits.user_tokens_per_minute,
                app.tokens_per_minute,
                limits.tenant_tokens_per_minute,
            ),
            ("cost", "cost units", limits.user_cost_per_minute, app.cost_per_minute, limits.tenant_cost_per_minute),
        ):
            yield _Measure(
                name,
                unit,
                limits_of(caller, of_user, of_app, of_tenant, f"{name}:"),
                caps_of(caller, of_user, of_tenant, limits.kappa, f"{name}:"),
            )

    def _counting(self, limits: Sequence[CallerLimit], amount: int, now: float) -> list[QuotaAccount]:
        """Return the accounts in which `amount` counts: up to the first limit that it exceeds."""
        counting = []
        for _, account in limits:
            counting.append(account)
            if self.window.used(account.key, now) + amount > account.limit:
                break
        return counting

    def _rejected(self, caller: Caller, measure: _Measure, limit: CallerLimit, amount: int, now: float) -> Rejected:
        account = limit.account
        wait = self.window.wait(account, amount, now)
        left = self.window.left(account, now)
        advice = f"retry in {wait:.1f} s" if amount <= account.limit else "ask for fewer tokens"
        message = (
            f"{limit.excess(caller, f'_{measure.name}')}: the call is expected to need {amount} {measure.unit}, "
            f"and {left} are left; {advice}"
        )
        return Rejected(limit.outcome, wait, message, account.limit)

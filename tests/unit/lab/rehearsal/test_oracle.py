"""Systems that break one promise, drawn and watched as every rehearsal: the oracle says which within a few seeds."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from gateway.core import call
from gateway.core.call import Attempts
from gateway.core.client_limits import OpenCallLimiter
from gateway.core.hedge import Hedge
from global_scheduler.core.block_tree import BlockTree
from global_scheduler.core.fleet import Fleet, slots
from global_scheduler.core.policies import Candidates, RouteRequest
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.policies.least_delay import LeastDelay
from lab.rehearsal import encoding, rehearsal, shared_limits, sharing_cluster
from lab.rehearsal.rehearsal import rehearse
from local_worker.core import delivery
from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.accounts.tree import AccountTree
from local_worker.core.delivery import Delivery, HeldOutput
from local_worker.core.events import RequestTokens, joined
from local_worker.core.policies.dlpm import DeficitOrder, Dlpm
from local_worker.core.policies.protocol import StepBudget
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.policies.vtc import Vtc
from local_worker.core.request import Request
from serving.cost import charge
from simulation import admission, worker
from simulation.spec import ADMISSIONS, GLOBAL_POLICIES, LOCAL_POLICIES, ClusterSpec
from throttler.core import throttle
from throttler.core.leased_quota import LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.oit import Oit
from throttler.core.profiles import Profiles
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.throttle import Caller, CallerLimit, Decision
from throttler.core.windows import Quota, QuotaAccount

pytestmark = pytest.mark.slow

SEEDS = 20


def complains(about: str, first: int = 0) -> None:
    """Within the first seeds, all of which pass without the mutation (test_rehearsal).

    Seeds before `first` are tried last: none of them told when the test was written.
    """
    with pytest.raises((AssertionError, call.IllegalEvent), match=about):
        rehearse_all((*range(first, SEEDS), *range(first)))


def rehearse_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rehearse(seed)


def losing(method: Callable[..., None]) -> Callable[..., None]:
    """The method, of which each tenth call does nothing."""
    calls = count(1)

    def called(*args: Any, **fields: Any) -> None:
        if next(calls) % 10:
            method(*args, **fields)

    return called


@pytest.mark.parametrize(
    ("structure", "method", "about", "first"),
    [
        (AccountTree, "withdrawn", "here are|may be dropped", 7),
        (Siblings, "lengthen", "indexed|may be dropped", 0),
        (BlockTree, "touch", "a node is newer than its parent", 0),
        (Fleet, "booked", "requests, a queue of|, not", 0),
        (OpenCallLimiter, "close", "open, .* counted", 0),
    ],
)
def test_a_structure_that_misses_a_change_now_and_then(
    structure: type, method: str, about: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are seen by the checks of the whole state, which follow some of the steps alone."""
    monkeypatch.setattr(structure, method, losing(getattr(structure, method)))
    complains(about, first)


class FreeDlpm(SlicedDlpm):
    """Charges nothing."""

    def _charge(self, request: Request, micro: int) -> bool:
        return False


class FreeOutputDlpm(SlicedDlpm):
    """Charges prompts alone."""

    def generated(self, request: Request, tokens: int) -> None:
        pass


class DoubleDlpm(SlicedDlpm):
    """Charges output twice."""

    def generated(self, request: Request, tokens: int) -> None:
        super().generated(request, tokens)
        super().generated(request, tokens)


@pytest.mark.parametrize("policy", [FreeDlpm, FreeOutputDlpm, DoubleDlpm])
def test_a_policy_that_does_not_charge_the_service(policy: type[SlicedDlpm], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_POLICIES, "dlpm", policy)
    complains("not charged by service and rounds alone", 3)


class FreeOutputVtc(Vtc):
    """Charges prompts alone."""

    def generated(self, request: Request, tokens: int) -> None:
        pass


def test_a_counter_below_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_POLICIES, "vtc", FreeOutputVtc)
    complains("charged less than the service", 2)


def ranked_without_regard_to_credit(order: DeficitOrder, account: Account) -> tuple[int, ...] | None:
    return order._best(account) if account.hungry else None


def test_a_balance_out_of_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeficitOrder, "_key", ranked_without_regard_to_credit)
    monkeypatch.setattr(Dlpm, "check_invariants", lambda policy: None)  # would see this before the oracle does
    complains(r"balance -\d+ not in", 4)


class Partial(SlicedDlpm):
    """Gives one client credit whenever it has none."""

    def generated(self, request: Request, tokens: int) -> None:
        super().generated(request, tokens)
        favourite = request.account.lineage[-1]
        while request.client.endswith("client-0") and favourite.balance <= 0:
            favourite.charge(-favourite.siblings.quantum)
            self._order.rank(request.account)


def test_a_gap_above_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_POLICIES, "dlpm", Partial)
    complains("above the bound", 5)


class Leaves(SlicedDlpm):
    """Charges the lowest accounts alone, so that who has many of them has as many shares."""

    def _charge(self, request: Request, micro: int) -> bool:
        leaf = request.account
        return leaf.charge(charge(micro, request.weight if leaf.is_highest else request.user_weight)) <= 0


def test_accounts_above_the_lowest_that_are_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_POLICIES, "dlpm", Leaves)
    complains("not charged by service and rounds alone", 12)


class PartialBelow(SlicedDlpm):
    """Gives one user of a tenant credit whenever it has none, where users are below their tenants."""

    def generated(self, request: Request, tokens: int) -> None:
        super().generated(request, tokens)
        for account in request.account.lineage[:-1]:
            while account.name.endswith("client-0") and account.balance <= 0:
                account.charge(-account.siblings.quantum)
                self._order.rank(request.account)


def test_a_gap_above_the_bound_below_the_highest_level(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_tenants(spec: ClusterSpec, rng: random.Random) -> ClusterSpec:
        return replace(spec, worker=replace(spec.worker, fairness_levels="tenant,user"))

    def with_little_debt(spec: ClusterSpec, rng: random.Random) -> ClusterSpec:
        return replace(spec, worker=replace(spec.worker, preemption_quanta=1))

    monkeypatch.setattr(rehearsal, "with_levels", with_tenants)
    monkeypatch.setattr(rehearsal, "with_preemption", with_little_debt)
    monkeypatch.setitem(LOCAL_POLICIES, "dlpm", PartialBelow)
    complains("above the bound", 12)


class Blind(SlicedDlpm):
    """Ends the turns of a step when one client would have the next."""

    def next(self, budget: StepBudget) -> Request | None:
        request = super().next(budget)
        return None if request is not None and request.client.endswith("client-3") else request


def test_a_newcomer_that_waits_for_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_POLICIES, "dlpm", Blind)
    complains(r"waits for \d+ steps, \d+.\d at most", 3)


class FreeDoubleQ(DoubleQ):
    """Charges nothing."""

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        self._credit(request).available(candidates)
        return 0

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        pass


class FreeOutputDoubleQ(DoubleQ):
    """Charges prompts alone."""

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        pass


class MeanDoubleQ(DoubleQ):
    """Gives nothing back."""

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        pass


class BlindDoubleQ(DoubleQ):
    """Places with those who have no credit, too."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        return choice.queues.least(choice.longest)


@pytest.mark.parametrize("policy", [FreeDoubleQ, FreeOutputDoubleQ, MeanDoubleQ, BlindDoubleQ])
def test_a_balance_that_is_not_due(policy: type[DoubleQ], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GLOBAL_POLICIES, "doubleq", policy)
    complains("refilled by|too much at slot|the balance is|without credit")


class ForgetfulLeastDelay(LeastDelay):
    """Takes what never started for outstanding."""

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        pass


class FreeLeastDelay(LeastDelay):
    """Takes every prompt for cached."""

    def _prompt_cost(self, request: RouteRequest, cached_tokens: int) -> int:
        return 0


class ClingingLeastDelay(LeastDelay):
    """Keeps the backlogs of workers that are lost."""

    def forget(self, slot: int) -> None:
        pass


@pytest.mark.parametrize("policy", [ForgetfulLeastDelay, FreeLeastDelay, ClingingLeastDelay])
def test_a_backlog_that_is_not_the_sum_of_what_is_placed(
    policy: type[LeastDelay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GLOBAL_POLICIES, "least-delay", policy)
    complains("the backlogs are|is booked for", 2)


class ClingyLeastDelay(LeastDelay):
    """Sends a client where it has most already."""

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        present = self.outstanding()
        return max(slots(choice.candidates), key=lambda slot: present.get((request.client, slot), (0, 0)))


def test_a_client_that_is_kept_where_it_has_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GLOBAL_POLICIES, "least-delay", ClingyLeastDelay)
    complains("goes to slot .* there, not", 2)


class Unprotected(Oit):
    """Throttles whoever is over a limit."""

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        return super().admit(caller, False, overloaded, now)


class Hasty(Oit):
    """Lets half as many pass as it should."""

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float) -> None:
        limits = profiles.limits
        half = replace(limits, user_per_minute=limits.user_per_minute // 2, kappa=2 * limits.kappa)
        super().__init__(Profiles(limits=half), quota, seconds)


def test_a_tenants_limit_that_counts_for_each_of_its_users(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_of = throttle.limits_of

    def of_users(caller: Caller, user: int, app: int, tenant: int | None) -> list[CallerLimit]:
        return limits_of(caller, user, app, None) + limits_of(caller._replace(tenant=caller.client), None, None, tenant)

    monkeypatch.setattr(throttle, "limits_of", of_users)
    complains(r"calls of tenant tenant admitted in a window, the limit is \d+", 17)


@pytest.mark.parametrize(("throttle", "who"), [(Unprotected, r"stage [1-3]"), (Hasty, "stage 0")])
def test_a_call_that_is_throttled_within_its_limits(
    throttle: type[Oit], who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ADMISSIONS, "oit", throttle)
    complains(rf"{who} of .* refused at \d+ of", 5)


class Narrow(OpenCallLimiter):
    """Lets each client have one open call less than its limit."""

    def __init__(self, *, per_client: int, total: int) -> None:
        super().__init__(per_client=per_client - 1, total=total)


def test_a_call_that_is_refused_although_its_client_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "OpenCallLimiter", Narrow)
    complains(r"refused at \d+ of 2 calls", 2)


def test_tokens_that_are_gathered_and_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetting(Delivery):
        def close(self, request: Request) -> None:
            self._waiting.pop(request, None)
            if not self._waiting:
                self.due = None
            super().close(request)

    monkeypatch.setattr(worker, "Delivery", Forgetting)
    complains("call [0-9]+: [0-9]+ of [0-9]+")


def test_tokens_that_are_gathered_and_leave_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeating(HeldOutput):
        def take(self) -> RequestTokens:
            tokens = joined(self.events)
            self.events, self.wanted = self.events[-1:], self.tokens_per_message
            self.tokens = sum(len(each.tokens) for each in self.events)
            return tokens

    monkeypatch.setattr(delivery, "HeldOutput", Repeating)
    complains("wrong tokens at")


class Generous(Attempts):
    """Takes the prompt for paid from the beginning."""

    def begin(self) -> None:
        super().begin()
        self.charged = True


class Forgetful(Attempts):
    """Does not remember that the prompt is paid."""

    def advanced(self) -> None:
        self._fruitless = 0

    def check_invariants(self) -> None:
        pass


@pytest.mark.parametrize("attempts", [Generous, Forgetful])
def test_a_prompt_that_is_charged_never_or_twice(attempts: type[Attempts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "Attempts", attempts)
    complains("for its prompt, .* is due")


class Selfish(LeasedQuota):
    """Uses each limit as if there were no other gateway."""

    def allowance(self, account: QuotaAccount, now: float) -> int:
        return account.limit


class Lavish(QuotaLedger):
    """Forgets what other gateways hold."""

    def ask(self, gateway: str, ask: LeaseRequest, gateways: int, now: float) -> LeaseReply:
        self._entries.clear()
        return super().ask(gateway, ask, gateways, now)


def test_gateways_that_admit_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing_cluster, "LeasedQuota", Selfish)
    complains(r"admitted in a window, the limit is", 4)


def test_a_ledger_that_gives_a_limit_away_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "QuotaLedger", Lavish)
    complains(r"admitted in a window, the limit is", 13)


class Talkative(Hedge):
    """Takes each answer for the first."""

    def answered(self) -> bool:
        return True


def test_a_hedge_whose_answers_both_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "Hedge", Talkative)
    complains("cannot be told Encoded")


class Patient(Hedge):
    """Asks no other worker before one fails."""

    def next_deadline(self) -> None:
        return None

"""Check Theorem 2 of docs/fairness.md: the steps that a hungry account waits while nobody is blocked."""

from collections.abc import Iterable
from dataclasses import dataclass

from local_worker.core.accounts.account import Account
from local_worker.core.batcher import Batcher
from local_worker.core.limits import BatchLimits
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.cost import WEIGHT_ONE, Cost

MOST_WAITS = 8  # number of requests that are followed at a time, of different accounts


@dataclass(slots=True)
class Wait:
    """A request that stays hungry; amounts are in micro-units over weight."""

    debts: list[int]  # of the accounts of its path when it began, the lowest first
    before: dict[Account, int]  # what these accounts and their siblings had been given then
    steps: int = 0  # number of steps since in which nobody was blocked
    allowed: float = 0.0  # number of steps that the theorem allows so far


class WaitAuditor:
    """The hungry requests of one worker in slices, which computes prompts at `cost`. Violations raise AssertionError.

    Every step without a blocked request is full, and all but R of its tokens are charged for prompts. A sibling of an
    account that is given X while it waits is charged at most X, the debt with which it began, 2 Q and U' more.
    """

    def __init__(self, cost: Cost) -> None:
        self._least_per_token = min(cost.extend(2, 0) - cost.extend(1, 0), cost.extend(2, 2) - cost.extend(1, 1))
        self._weights = {True: (WEIGHT_ONE, WEIGHT_ONE), False: (WEIGHT_ONE, WEIGHT_ONE)}  # of the highest level?
        self._waits: dict[Request, Wait] = {}

    def stepped(self, batcher: Batcher) -> None:
        """Check those who wait, after each step; only what waited before it has waited for it."""
        turns, balances = batcher.turns, batcher.queue.policy.balance_range_micro
        if turns is None or balances is None:
            return
        waiting = batcher.queue.waiting
        self._weigh([*waiting, *batcher.queue.running])
        self._waits = {request: wait for request, wait in self._waits.items() if _is_hungry(request, batcher.queue)}
        for request, wait in self._waits.items():
            wait.steps += not turns.blocked
            if wait.steps > wait.allowed:
                wait.allowed = self._allowed(request, wait, batcher.queue.limits, balances)
                assert wait.steps <= wait.allowed, (
                    f"{request.path} waits for {wait.steps} steps, {wait.allowed:.1f} at most"
                )
        followed = {request.account for request in self._waits}
        for request in waiting:
            if len(followed) < MOST_WAITS and request.account not in followed:
                followed.add(request.account)
                lineage = request.account.lineage
                before = {each: each.weighted for account in lineage for each in account.siblings.members.values()}
                self._waits[request] = Wait([max(0, -account.balance) for account in lineage], before)

    def _weigh(self, requests: Iterable[Request]) -> None:
        for request in requests:
            for is_highest, weight in ((True, request.weight), (False, request.user_weight)):
                least, most = self._weights[is_highest]
                self._weights[is_highest] = min(least, weight), max(most, weight)

    def _allowed(self, request: Request, wait: Wait, limits: BatchLimits, balances: tuple[int, int]) -> float:
        least, quantum = balances
        micro, lineage = 0.0, request.account.lineage
        given = float(lineage[0].weighted - wait.before[lineage[0]])
        for account, debt in zip(lineage, wait.debts, strict=True):
            lightest, heaviest = self._weights[account.is_highest]
            given = micro * WEIGHT_ONE / lightest if micro else given
            members = account.siblings.members.values()
            served = sum(each.weighted > wait.before.get(each, 0) for each in members if each is not account)
            micro = (given + served * (given + debt + 2 * quantum - least)) * heaviest / WEIGHT_ONE
        return 1 + micro / self._least_per_token / (limits.token_budget - limits.max_running)


def _is_hungry(request: Request, queue: RequestQueue[PrefixCache]) -> bool:
    """Return whether an interactive `request` waits, or runs and has a part of its prompt that no step was given."""
    policy = queue.policy_of(request)
    is_open = isinstance(policy, SlicedDlpm) and request in policy.open
    return not request.background and (is_open or request in queue.waiting)

"""The division of a step into slices: decode tokens, and parts of prompts in the turns of the policy.

A step goes first to the decodes of accounts that are not far in debt, then to turns of hungry accounts with credit. The
rest goes to those in debt: all of it if nobody with credit is blocked, and otherwise as far as a debt of P. See
docs/fairness.md, "Fair slices".
"""

from bisect import bisect_left
from collections.abc import Callable, Collection

from local_worker.core.in_flight import InFlight
from local_worker.core.policies.dlpm import MAX_MISFITS
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.preemption import Preemption
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from local_worker.core.slicing import SCORED_TOKENS, behind
from local_worker.core.step_pace import StepPace

# Number of requests of an account that do not fit, after which a step tries no other request of this account.
MISFITS_OF_ACCOUNT = 2
# Largest number of accounts in debt that a step tries while others are blocked.
MAX_BACKFILLS = 16


class Turns:
    """The turns of one batch, whose steps `divide` divides one after the other."""

    def __init__(
        self, queue: RequestQueue[PrefixCache], policy: SlicedDlpm, in_flight: InFlight, pace: StepPace
    ) -> None:
        self._queue = queue
        self._policy = policy
        self._preemption = Preemption(queue, policy, in_flight, self._has_slice, self._take_back)
        self._in_flight = in_flight
        self._pace = pace
        self._most_running = queue.limits.max_running
        self._parts: dict[Request, int] = {}  # request -> its tokens in the step
        self._left = 0.0  # number of tokens without context that the step can still compute
        self._sliced: set[Request] = set()  # those of `_parts` that compute a part of their prompt
        self._unscored = 0  # number of tokens that the step can still score
        self._blocked: dict[Request, int] = {}  # with credit, but without room -> number of steps in which it was so

    def divide(
        self, now: float, running: Collection[Request], can_enter: bool
    ) -> tuple[list[Request], dict[Request, int]]:
        """Return the requests that enter now, and those that take part in the step, each with its number of tokens.

        Of the requests that run, `running` may take part. The step is empty if nothing is due, or if it is
        better to wait for the steps in flight: somebody may give way then, or end.
        """
        self._parts, self._sliced = {}, set()
        self._left, self._unscored = self._pace.budget, SCORED_TOKENS
        self._policy.begin_step(self._queue)
        late = self._decode(now, running)
        admitted = self._turns(can_enter)
        if not self._blocked or self._preemption.is_deferred:
            self._decode_late(late)
        self._extend_in_debt(self._policy.tokens_until_beyond if self._blocked else self._without_limit)
        if self._blocked and can_enter:
            admitted += self._backfill()
        self._policy.release()
        if not self._parts and not self._in_flight:
            if not can_enter:
                return self.divide(now, running, can_enter=True)  # the preempted would not have gone on either
            self._decode_late(late)  # nobody gains by a pause
            self._extend_in_debt(self._without_limit)
        self._preemption.served += sum(self._parts.values())
        return admitted, self._parts

    @property
    def blocked(self) -> int:
        """The number of requests with credit for which the last step had no room."""
        return len(self._blocked)

    def is_hungry(self, request: Request) -> bool:
        """Return whether `request` waits, or runs and has a part of its prompt that no step was given."""
        return request in self._policy.open or request in self._queue.waiting

    def _decode(self, now: float, running: Collection[Request]) -> list[Request]:
        """Give each request that generates its next token, but for those of accounts at least P in debt: return
        these."""
        late, parts, is_open = [], self._parts, self._policy.open
        beyond = self._preemption.begin(now)
        for request in running:
            if request in is_open or behind(request) < 1:
                continue
            if request.account in beyond:
                late.append(request)
            else:
                parts[request] = 1
        self._left -= len(parts)
        return late

    def _decode_late(self, late: list[Request]) -> None:
        for request in late:
            if self._left >= 1 and not self._preemption.is_yielding(request):
                self._parts[request] = 1
                self._left -= 1

    def _turns(self, can_enter: bool) -> list[Request]:
        """Give turns to hungry accounts with credit, in the order of the policy; return the requests that enter."""
        policy, before = self._policy, self._blocked
        self._blocked = {}
        admitted: list[Request] = []
        misfits: dict[object, int] = {}
        patient = self._preemption.patient(before)
        while self._left >= 1 and len(self._blocked) < MAX_MISFITS:
            request, patient = patient or policy.next(self._queue), None
            if request is None:
                break
            if request not in policy.open:
                if (other := self._queue.cache.computing(request)) is not None:
                    if not self._extend_for(other, request):
                        self._block(request, before)
                        policy.hold(request)
                    continue
                if not can_enter or not self._enter(request, before.get(request, 0)):
                    self._block(request, before)
                    if not can_enter or (self._is_full and not self._preemption.has_victims):
                        self._extend_open()
                        break
                    misfits[request.account] = misfits.get(request.account, 0) + 1
                    is_last = misfits[request.account] == MISFITS_OF_ACCOUNT
                    (policy.hold_all if is_last else policy.hold)(request)
                    continue
                admitted.append(request)
            if not self._extend(request, policy.tokens_until_dry(request), request):
                policy.hold(request)
        return admitted

    @property
    def _is_full(self) -> bool:
        return len(self._queue.running) >= self._most_running

    def _extend_open(self) -> None:
        """Give turns to open requests of accounts with credit: no other request can enter in this step."""
        for request in sorted(self._policy.open, key=lambda request: (-self._planned(request), request.arrival)):
            if self._left >= 1 and self._policy.has_credit(request):
                self._extend(request, self._policy.tokens_until_dry(request), request)

    def _block(self, request: Request, before: dict[Request, int]) -> None:
        self._blocked[request] = before.get(request, 0) + 1

    def _enter(self, request: Request, steps: int) -> bool:
        """Admit `request`, which was blocked for `steps` steps, if need be in the place of others."""
        queue = self._queue
        if self._preemption.is_yielding(request):
            return False
        if not self._fits(request) and not (self._preemption.make_room(request, steps) and self._fits(request)):
            return False
        self._preemption.entered(request)
        self._policy.entered(request, queue)
        return True

    def _fits(self, request: Request) -> bool:
        """Admit `request` if there is a place and pages for it."""
        return not self._is_full and self._queue.enter(request)

    def _extend_for(self, other: Request, payer: Request) -> bool:
        """Give a slice to `other`, which computes a block that `payer` waits for, in the name of `payer`; return False
        if that is not possible.

        The slice ends where their prompts differ: nobody pays for what only others need.
        """
        if other not in self._policy.open or self._preemption.is_yielding(other):
            return False
        block = self._queue.cache.block_tokens
        # A digest stands for all before it, so that the first that differs is found by halving.
        indexes = range(min(len(other.digests), len(payer.digests)))
        common = bisect_left(indexes, True, key=lambda index: other.digests[index] != payer.digests[index])
        most = common * block - self._planned(other)
        tokens = min(most, self._policy.tokens_until_dry(payer))
        return tokens > 0 and self._extend(other, tokens, payer)

    def _planned(self, request: Request) -> int:
        return request.computed + self._parts.get(request, 0)

    def _extend(self, request: Request, tokens: int, payer: Request) -> bool:
        """Give an open `request` its next slice of about `tokens` tokens, and charge it to the accounts of `payer`.

        The slice ends with a block, so that no page is left half filled. Return False if the step has no room for it.
        """
        start, block = self._planned(request), self._queue.cache.block_tokens
        most = self._pace.most_tokens(start, self._left)
        if not self._parts:
            most = max(most, block)  # wherever a prompt is, it goes on
        stop = min(request.due, -(-(start + max(1, tokens)) // block) * block, start + most)
        if request.scores_prompt:
            stop = min(stop, start + self._unscored)
        if stop <= start:
            return False
        if request.scores_prompt:
            self._unscored -= stop - start
        self._parts[request] = self._parts.get(request, 0) + stop - start
        self._left -= self._pace.counted(start, stop - start)
        self._sliced.add(request)
        self._policy.charge_slice(payer, self._queue.charge_slice(request, start, stop, payer))
        if stop == request.due:
            self._queue.accounts.planned(request)
        self._policy.planned(request, stop)
        return True

    def _has_slice(self, request: Request) -> bool:
        """Return whether the step computes a part of the prompt of `request`, which is charged."""
        return request in self._sliced

    def _take_back(self, request: Request) -> None:
        """Take back the decode token of `request` in the step, if it has one."""
        self._left += self._parts.pop(request, 0)

    def _extend_in_debt(self, most: Callable[[Request], int]) -> None:
        """Give what is left of the step to open requests, the least debt first, each as many tokens as `most` says."""
        if self._left >= 1 and self._policy.open:
            for request in self._policy.open_by_balance():
                if self._left >= 1 and not self._preemption.is_yielding(request) and (tokens := most(request)) > 0:
                    self._extend(request, tokens, request)

    def _without_limit(self, request: Request) -> int:
        return request.due - self._planned(request)

    def _backfill(self) -> list[Request]:
        """Admit a request of each of those in debt who have none in the batch, while others are blocked.

        More would take the pages for which the blocked ones wait. They give way as soon as they are P in debt.
        """
        admitted: list[Request] = []
        if self._is_full or self._left < 1:
            return admitted
        newcomers = [leaf for leaf in self._policy.hungry_leaves() if not leaf.lineage[-1].running]
        for leaf in newcomers[:MAX_BACKFILLS]:  # those who are hungry for longest
            request = self._policy.first_waiting(leaf)
            if request is None or leaf.lineage[-1].running or self._policy.has_credit(request):
                continue
            tokens = self._policy.tokens_until_beyond(request)
            may_enter = tokens > 0 and self._left >= 1 and not self._preemption.is_yielding(request)
            may_enter = may_enter and self._queue.cache.computing(request) is None
            if may_enter and self._preemption.is_within_share(request) and self._fits(request):
                self._preemption.entered(request)
                self._policy.entered(request, self._queue)
                self._extend(request, tokens, request)
                admitted.append(request)
        return admitted

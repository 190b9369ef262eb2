"""The division of a step into slices: decode tokens, and parts of prompts in the turns of the policy.

A step goes first to the decodes of accounts that are not far in debt, then to turns of hungry accounts with credit. The
rest goes to those in debt: all of it if nobody with credit is blocked, and otherwise as far as a debt of P. See
docs/fairness.md, "Fair slices". Of two classes each has turns of its own, one after the other: see `class_turns`.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from local_worker.core.plan import SCORED_TOKENS, InFlight, StepPace, behind
from local_worker.core.policies.dlpm import MAX_MISFITS
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.preemption import Preemption
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request

# Number of requests of an account that do not fit, after which a step tries no other request of this account.
MISFITS_OF_ACCOUNT = 2
# Largest number of accounts in debt that a step tries while others are blocked.
MAX_BACKFILLS = 16


@dataclass(slots=True)
class Step:
    """A step that is being divided."""

    left: float  # number of tokens without context that it can still compute
    unscored: int = SCORED_TOKENS  # number of tokens that it can still score
    parts: dict[Request, int] = field(default_factory=dict)  # request -> its tokens in the step


class Turns:
    """The turns of the requests of one policy, between which `divide` divides one step after the other."""

    def __init__(
        self, queue: RequestQueue[PrefixCache], policy: SlicedDlpm, in_flight: InFlight, pace: StepPace
    ) -> None:
        self._queue = queue
        self._policy = policy
        self._preemption = Preemption(queue, policy, in_flight, self._has_slice, self._take_back)
        self._in_flight = in_flight
        self._pace = pace
        self._most_running = queue.limits.max_running
        self._step = Step(0.0)
        self._others = 0  # number of requests of other classes in the step
        self._late: list[Request] = []  # those that generate, and get what others leave of the step
        self._sliced: set[Request] = set()  # requests of the step that compute a part of their prompt
        self._placeless: int | None = None  # accounts with credit and no place, once counted as far as places are free
        self._blocked: dict[Request, int] = {}  # with credit, but without room -> number of steps in which it was so

    def divide(
        self, now: float, running: Collection[Request], can_enter: bool
    ) -> tuple[list[Request], dict[Request, int]]:
        """Return the requests that enter now, and those that take part in the step, each with its number of tokens.

        Of the requests that run, `running` may take part. The step is empty if nothing is due, or if it is
        better to wait for the steps in flight: somebody may give way then, or end.
        """
        step = Step(self._pace.budget)
        self._preemption.begin(now, self._queue.running)
        return self.take_turns(step, running, can_enter), step.parts

    def take_turns(self, step: Step, running: Iterable[Request], can_enter: bool) -> list[Request]:
        """Give what is left of `step` to the requests of the policy; return those that enter.

        Where nobody would go on, those may enter that were not to in this step: the preempted would not have gone on
        either.
        """
        admitted = self.share_out(step, running, can_enter)
        if not can_enter and self._is_idle:
            admitted = self.share_out(step, running, can_enter=True)
        self.resume()
        return admitted

    @property
    def preemption(self) -> Preemption:
        """Those that give way to others; it has to `begin` each step before `share_out`."""
        return self._preemption

    def share_out(self, step: Step, running: Iterable[Request], can_enter: bool) -> list[Request]:
        """Give what is left of `step` to the requests of the policy, but for those that pause; return those that
        enter."""
        self._step, self._sliced, self._placeless = step, set(), None
        self._others, before = len(step.parts), sum(step.parts.values())
        self._policy.begin_step(self._queue)
        late = self._late = self._decode(running)
        admitted = self._turns(can_enter)
        if not self._blocked or self._preemption.is_deferred:
            self._decode_late(late)
        self._extend_in_debt(self._policy.tokens_until_beyond if self._blocked else self._without_limit)
        if self._blocked and can_enter:
            admitted += self._backfill()
        self._policy.release()
        self._preemption.served += sum(step.parts.values()) - before
        return admitted

    @property
    def _is_idle(self) -> bool:
        """Whether no request of the policy takes part in this step, or in one in flight."""
        return len(self._step.parts) == self._others and not self._in_flight.has_any(self._preemption.mine)

    def resume(self) -> None:
        """Let those go on that paused for others, if nobody gains by it: no request of the policy would go on."""
        if self._is_idle:
            before = sum(self._step.parts.values())
            self._decode_late(self._late)
            self._extend_in_debt(self._without_limit)
            self._preemption.served += sum(self._step.parts.values()) - before
        self._queue.ledger.paused_decodes += sum(map(self._is_paused, self._late))

    def _is_paused(self, request: Request) -> bool:
        return request in self._queue.running and request not in self._step.parts

    @property
    def blocked(self) -> int:
        """The number of requests with credit for which the last step had no room."""
        return len(self._blocked)

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of prompts that the last step computes for the policy's requests."""
        return sum(self._step.parts[request] for request in self._sliced)

    def _decode(self, running: Iterable[Request]) -> list[Request]:
        """Give each request that generates its next token, but for those of accounts at least P in debt: return
        these."""
        step, is_open, beyond = self._step, self._policy.open, self._preemption.beyond
        due = [request for request in running if request not in is_open and behind(request) > 0]
        late = [request for request in due if request.account in beyond] if beyond else []
        if late:
            due = [request for request in due if request.account not in beyond]
        if len(due) > step.left:
            due = sorted(due, key=lambda request: -request.account.balance)[: int(step.left)]
        step.parts |= dict.fromkeys(due, 1)
        step.left -= len(due)
        return late

    def _decode_late(self, late: list[Request]) -> None:
        for request in late:
            if self._step.left >= 1 and not self._preemption.is_yielding(request):
                self._step.parts[request] = 1
                self._step.left -= 1

    def _turns(self, can_enter: bool) -> list[Request]:
        """Give turns to hungry accounts with credit, in the order of the policy; return the requests that enter."""
        policy, before = self._policy, self._blocked
        self._blocked = {}
        admitted: list[Request] = []
        misfits: dict[object, int] = {}
        patient = self._preemption.patient(before)
        while self._step.left >= 1 and len(self._blocked) < MAX_MISFITS:
            request, patient = patient or policy.next(self._queue), None
            if request is None:
                break
            if request not in policy.open:
                if (other := self._computing(request)) is not None:
                    if not self._extend_for(other, request):
                        self._block(request, before)
                        policy.hold(request)
                    continue
                if can_enter and not self._leaves_places(request):
                    self._block(request, before)
                    policy.hold_all(request)
                    continue
                if not can_enter or not self._enter(request, before.get(request, 0)):
                    self._block(request, before)
                    if self._preemption.is_promised(request):
                        policy.hold(request)
                        continue
                    if not can_enter or (self._is_full and not self._preemption.has_victims):
                        self._extend_open()
                        break
                    misfits[request.account] = misfits.get(request.account, 0) + 1
                    is_last = misfits[request.account] == MISFITS_OF_ACCOUNT
                    (policy.hold_all if is_last else policy.hold)(request)
                    continue
                admitted.append(request)
            elif self._preemption.is_yielding(request):
                policy.hold(request)
                continue
            if not self._extend(request, policy.tokens_until_dry(request), request):
                policy.hold(request)
        return admitted

    @property
    def _is_full(self) -> bool:
        return len(self._queue.running) >= self._most_running

    def _extend_open(self) -> None:
        """Give turns to open requests of accounts with credit: no other request can enter in this step."""
        for request in sorted(self._policy.open, key=lambda request: (-self._planned(request), request.arrival)):
            if self._step.left >= 1 and self._policy.has_credit(request):
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
        if self._placeless and request.account.running == 1:
            self._placeless -= 1
        self._preemption.entered(request)
        self._policy.entered(request, queue)
        return True

    def _leaves_places(self, request: Request) -> bool:
        """Return whether `request` is within its account's share of places, or leaves a free one to each account with
        credit that holds none: these would take its place in the next steps, and it would compute again what it loses.
        """
        account = request.account
        if account.running < max(1, account.share(self._most_running)) or not (free := self._preemption.free_places):
            return True
        if self._placeless is None:
            placeless = (
                leaf
                for leaf in self._policy.hungry_leaves()
                if not leaf.running and not any(map(self._policy.owes, leaf.lineage))
            )
            self._placeless = len(list(islice(placeless, free)))
        return self._placeless < free

    def _fits(self, request: Request) -> bool:
        """Admit `request` if there is a place and pages for it."""
        return not self._is_full and self._queue.enter(request)

    def _computing(self, request: Request) -> Request | None:
        """Return the running request, not of a lower class, that computes a block for which `request` waits."""
        other = self._queue.cache.computing(request)
        return None if other is None or (other.background and not request.background) else other

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
        return request.computed + self._step.parts.get(request, 0)

    def _extend(self, request: Request, tokens: int, payer: Request) -> bool:
        """Give an open `request` its next slice of about `tokens` tokens, and charge it to the accounts of `payer`.

        The slice ends with a block, so that no page is left half filled. Return False if the step has no room for it.
        """
        start, block = self._planned(request), self._queue.cache.block_tokens
        most = self._pace.most_tokens(start, self._step.left)
        if not self._step.parts:
            most = max(most, block)  # wherever a prompt is, it goes on
        stop = min(request.due, -(-(start + max(1, tokens)) // block) * block, start + most)
        if request.scores_prompt:
            stop = min(stop, start + self._step.unscored)
        if stop <= start:
            return False
        if request.scores_prompt:
            self._step.unscored -= stop - start
        self._step.parts[request] = self._step.parts.get(request, 0) + stop - start
        self._step.left -= self._pace.counted(start, stop - start)
        self._sliced.add(request)
        ledger = self._queue.ledger
        before = ledger.recomputed_tokens
        self._policy.planned(request, stop, payer, self._queue.charge_slice(request, start, stop, payer))
        self._preemption.repeated += ledger.recomputed_tokens - before
        return True

    def _has_slice(self, request: Request) -> bool:
        """Return whether the step computes a part of the prompt of `request`, which is charged."""
        return request in self._sliced

    def _take_back(self, request: Request) -> None:
        """Take back the decode token of `request` in the step, if it has one."""
        if (tokens := self._step.parts.pop(request, 0)) > 0:
            self._step.left += tokens
            self._late.append(request)

    def _extend_in_debt(self, most: Callable[[Request], int]) -> None:
        """Give what is left of the step to open requests, the least debt first, each as many tokens as `most` says."""
        if self._step.left >= 1 and self._policy.open:
            for request in self._policy.open_by_balance():
                if self._step.left >= 1 and not self._preemption.is_yielding(request) and (tokens := most(request)) > 0:
                    self._extend(request, tokens, request)

    def _without_limit(self, request: Request) -> int:
        return request.due - self._planned(request)

    def _backfill(self) -> list[Request]:
        """Admit a request of each of those in debt who have none in the batch, while others are blocked.

        More would take the pages for which the blocked ones wait. Where all of these ask for more than their shares,
        others may have more than one, and beyond their shares what ends before they are P in debt and give way: who
        asks for all of memory must not empty the batch.
        """
        admitted: list[Request] = []
        if self._step.left < 1 or (self._is_full and not self._preemption.has_others):
            return admitted
        is_awaited = any(map(self._preemption.is_within_share, self._blocked))
        leaves = list(self._policy.hungry_leaves())  # those who are hungry for longest come first
        newcomers = (leaf for leaf in leaves if not (is_awaited and leaf.lineage[-1].running))
        for leaf in islice(newcomers, MAX_BACKFILLS):
            request = self._policy.first_waiting(leaf)
            if request is None or self._policy.has_credit(request):
                continue
            may_enter = self._policy.tokens_until_beyond(request) > 0 and self._step.left >= 1
            may_enter = may_enter and not self._preemption.is_yielding(request)
            may_enter = may_enter and self._computing(request) is None
            may_enter = may_enter and (
                self._preemption.is_within_share(request)
                or (not is_awaited and self._policy.can_finish(request, self._queue.running))
            )
            if may_enter and (self._fits(request) or (self._preemption.displace(request) and self._fits(request))):
                self._preemption.entered(request)
                self._policy.entered(request, self._queue)
                # What was charged for room is not left for the prompt.
                if not self._extend(request, self._policy.tokens_until_beyond(request), request):
                    self._policy.hold(request)
                admitted.append(request)
        return admitted

"""The batching of the engine behind the VTC measurements (S-LoRA, on LightLLM; VTC section 5.1).

It combines the measured system's own admission with a policy of ours. New requests enter from the tenth decoding step
on, if an estimate of the batch's peak memory permits it; a prefill runs alone while the others wait. Three more
properties were found in its published code (github.com/Ying1123/VTC-artifact, slora/server/router) and confirmed by the
measured admissions. Space for an adapter is reserved for every client in the batch, although no adapter is loaded.
Arrivals are read only when a step begins, after the admission decision and the step's charges, or after a request has
ended. In the revised code, every request in the batch pays once more whenever one of them ends.
"""

from collections.abc import Collection

from lab.reproduction.peak_memory_estimate import PeakMemoryEstimate, Size
from lab.reproduction.slora_policies import SloraVtc
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.events import RequestTokens
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Plan
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.cost import Cost

DECODES_BETWEEN_PREFILLS = 10
PREFILL_SHARE = 6  # at most 1/6 of the memory, or the longest request, in new prompts at a time
LONGEST_REQUEST = 3072
ADAPTER_TOKENS = 32  # four pages per rank, of rank 8


class SloraQueue(RequestQueue[PrefixCache]):
    """A queue whose arrivals are read late, and whose requests enter if the estimate of the batch's memory permits."""

    def __init__(self, policy: QueuePolicy, cache: PrefixCache, cost: Cost, limits: BatchLimits, capacity: int) -> None:
        super().__init__(policy, cache, cost, limits)
        self._capacity = capacity  # tokens
        self._prefill_limit = max(self._capacity // PREFILL_SHARE, LONGEST_REQUEST)
        self._prefill = 0
        self._due = True
        self._unread: list[tuple[Request, float]] = []  # arrivals that are not yet in the queue, with their times
        self._queues = ClientQueues()
        self._clients: dict[str, None] = {}  # all clients so far

    def submit(self, request: Request, now: float) -> Request | None:
        """Queue the request; see RequestQueue. No other request is dropped for it."""
        request.path = self.policy_of(request).accounts.path(request)
        self.check(request)
        self._unread.append((request, now))
        return None

    def read(self) -> None:
        """Read the new arrivals."""
        for request, since in self._unread:
            super().submit(request, since)
            self._queues.add(request)
            self._clients[request.client] = None
        self._unread.clear()

    def abort(self, request: Request) -> None:
        """See RequestQueue."""
        if request in self.waiting:
            self._queues.remove(request)
        self._unread = [entry for entry in self._unread if entry[0] is not request]
        super().abort(request)

    def begin_step(self, due: bool) -> None:
        """Admit requests in the next step only if it is `due`."""
        self._due, self._prefill = due, 0

    def admit(self, request: Request) -> int | None:
        """Admit the request if the module's rules permit it; see StepBudget."""
        if not self._due or self._prefill + request.prompt_tokens > self._prefill_limit:
            return None
        if not self._fits(request, self._outlook(), 0):
            return None
        extend = super().admit(request)
        if extend is not None:
            self._prefill += request.prompt_tokens
            self._queues.remove(request)
        return extend

    def _outlook(self) -> PeakMemoryEstimate:
        running = self.running
        sizes = [(left_of(r) - 1, len(r.tokens)) if r.output_tokens else _entering(r) for r in running]
        return PeakMemoryEstimate(sizes, {request.client for request in running})

    def _fits(self, request: Request, outlook: PeakMemoryEstimate, steps: int) -> bool:
        """Return whether the request fits after `steps` more steps."""
        clients = len(outlook.clients) + (request.client not in outlook.clients)
        return outlook.most(_entering(request), steps) < self._capacity - ADAPTER_TOKENS * clients

    @property
    def has_backlog_of_all(self) -> bool:
        """Whether every client so far has a request waiting."""
        return len(self._queues.clients) == len(self._clients)

    def steps_until_entry(self, most: int) -> int:
        """Return the number of steps until the next request of some client fits, at most `most`."""
        heads, outlook = [self._queues.first(client) for client in self._queues.clients], self._outlook()
        return next((n for n in range(1, most) if any(self._fits(head, outlook, n) for head in heads)), most)


class SloraBatcher(Batcher):
    """A batcher with optimistic admission, whose estimate prevents every preemption; pages are allocated as tokens
    come."""

    queue: SloraQueue

    def __init__(self, queue: SloraQueue, eos_token_ids: Collection[int]) -> None:
        super().__init__(queue, eos_token_ids)
        self._decodes = 0

    def plan(self, now: float) -> Plan | None:
        """Plan the prompts that enter as a step of their own, or else a run of decoding steps."""
        queue = self.queue
        if not queue.running:
            queue.read()
        due = not queue.running or self._decodes >= DECODES_BETWEEN_PREFILLS
        queue.begin_step(due)
        plan = super().plan(now)
        if plan is None:
            return None
        self._begin(plan)
        shares = [(request, piece.stop - piece.start) for request, piece in plan.parts]
        return plan._replace(lengths=self._lengths(shares, self._steps(plan, due)))

    def _begin(self, plan: Plan) -> None:
        """Charge a decoding step when it begins, with the authors' counters, and then read the new arrivals.

        In this order the counter to which an arrival is lifted includes the step's charge.
        """
        if isinstance(self.queue.policy, SloraVtc) and not _computes_prompts(plan):
            for request in plan.requests:
                self.queue.policy.pay_latest(request)
        self.queue.read()

    def _shares(self) -> list[tuple[Request, int]]:
        shares = super()._shares()
        return [(request, tokens) for request, tokens in shares if request.computed < request.prompt_tokens] or shares

    def _steps(self, plan: Plan, due: bool) -> int:
        """Return the steps until a request ends, may enter or may be read.

        It is 1 where a step matters, because the counter to which a new client is lifted changes with every step.
        """
        if not (isinstance(self.queue.policy, Fcfs) or self.queue.has_backlog_of_all):
            return 1
        end = min(map(left_of, plan.requests))
        if not due:
            return max(1, min(end, DECODES_BETWEEN_PREFILLS - self._decodes - 1))
        return self.queue.steps_until_entry(end) if self.queue.waiting else 1

    def commit(self, plan: Plan, result: StepResult) -> list[RequestTokens]:
        """See Batcher."""
        self._decodes = 0 if _computes_prompts(plan) else self._decodes + max(map(len, result.runs), default=1)
        advances = super().commit(plan, result)
        if any(advance.finish is not None for advance in advances):
            self._ended(advances)
            self.queue.read()
        return advances

    def _ended(self, advances: list[RequestTokens]) -> None:
        """Do what else happens when a request has ended."""


class RevisedSloraQueue(SloraQueue):
    """The queue of the authors' revised code with one of their counters."""

    def finish(self, request: Request) -> None:
        """Charge the last token; see RequestQueue."""
        assert isinstance(self.policy, SloraVtc)
        self.policy.pay_latest(request)
        super().finish(request)


class RevisedSloraBatcher(SloraBatcher):
    """The batcher of the authors' revised code with one of their counters: see the module's docstring."""

    def _ended(self, advances: list[RequestTokens]) -> None:
        assert isinstance(self.queue.policy, SloraVtc)
        for advance in advances:
            if advance.finish is None:
                self.queue.policy.pay_latest(advance.request)


def left_of(request: Request) -> int:
    """Return the number of tokens that `request` has still to generate: simulated requests use their whole budget."""
    return request.budget - len(request.tokens)


def _computes_prompts(plan: Plan) -> bool:
    """Return whether the plan computes prompts: all its slices do, or none does."""
    piece = plan.batch.slices[0]
    return piece.start < piece.prompt_tokens


def _entering(request: Request) -> Size:
    return request.sampling.max_tokens - 1, request.prompt_tokens + 1

"""Drives a real engine through the real batcher, as the engine loop does."""

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from fairlead.token_ids import pack_ids
from local_worker.core.accounts.tree import FLAT, FairnessLevels
from local_worker.core.batch import Batch, Engine, PendingStep
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.plan import Plan
from local_worker.core.policies import WHOLE_POLICIES, ClassedPolicy, QueuePolicy, QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.bounded_client_map import MOST_IDLE
from serving.cost import WEIGHT_ONE, Cost, WeightedTokens
from serving.sampling_params import SamplingParams
from simulation.spec import LOCAL_POLICIES

WHOLE_DLPM, WHOLE_VTC = "dlpm over whole requests", "vtc over whole requests"
CLASSED_DLPM = "dlpm with classes"
POLICIES: dict[str, Callable[[QueuePolicyConfig], QueuePolicy | ClassedPolicy]] = {
    **LOCAL_POLICIES,
    WHOLE_DLPM: WHOLE_POLICIES["dlpm"],
    WHOLE_VTC: WHOLE_POLICIES["vtc"],
    CLASSED_DLPM: partial(ClassedPolicy, LOCAL_POLICIES["dlpm"]),
}
BLOCK = 4
SEED = 7


def make_batcher(
    *,
    pages: int = 512,
    token_budget: int = 64,
    max_running: int = 64,
    max_prompt_tokens: int = 512,
    max_waiting: int = 1000,
    policy: str = "fcfs",
    eos: tuple[int, ...] = (),
    admission: AdmissionMode = AdmissionMode.RESERVE,
    max_output_tokens: int = 512,
    cost: Cost | None = None,
    least_weight: int = WEIGHT_ONE,
    quantum_tokens: int = 64,
    most_idle: int = MOST_IDLE,
    block_tokens: int = BLOCK,
    levels: FairnessLevels = FLAT,
    most_debt_tokens: int = 1024,
    ahead: int = 1,
    decode_run: int = 1,
) -> Batcher:
    cost = cost or WeightedTokens()
    together = max_running * max_output_tokens
    config = QueuePolicyConfig(
        quantum_tokens=quantum_tokens,
        cost=cost,
        max_input_tokens=max_prompt_tokens,
        max_output_tokens=max_output_tokens,
        least_weight=least_weight,
        most_idle=most_idle,
        block_tokens=block_tokens,
        levels=levels,
        most_debt_tokens=most_debt_tokens,
        most_uncharged_tokens=max_running * decode_run * (1 + ahead),
        most_output_tokens=together if admission is AdmissionMode.OPTIMISTIC else min(together, pages * block_tokens),
    )
    limits = BatchLimits(
        max_running=max_running,
        token_budget=token_budget,
        max_prompt_tokens=max_prompt_tokens,
        max_waiting=max_waiting,
        max_waiting_per_client=1000,
        admission=admission,
    )
    cache = PrefixCache(pages, block_tokens)
    return Batcher(RequestQueue(POLICIES[policy](config), cache, cost, limits), eos, decode_run)


def make_request(
    prompt: Sequence[int],
    *,
    arrival: int = 0,
    seed_position: int = 0,
    sampling: SamplingParams | None = None,
    block_tokens: int = BLOCK,
) -> Request:
    return Request(
        id=f"r{arrival}",
        client=f"c{arrival % 3}",
        tokens=list(prompt),
        prompt_tokens=len(prompt),
        digests=list(unpack_digests(chain(pack_ids(prompt), block_tokens, SEED))),
        chain_seed=SEED,
        sampling=sampling or SamplingParams(max_tokens=8, ignore_eos=True),
        arrival=arrival,
        seed_position=seed_position,
    )


def elsewhere(batch: Batch) -> Batch:
    """The batch as it arrives at another process: all that an engine may look at."""
    copy: Batch = pickle.loads(pickle.dumps(batch))
    return copy


class Driver:
    """Plans, launches and commits as the engine loop does; with an engine that runs ahead, one step behind."""

    def __init__(self, batcher: Batcher, engine: Engine) -> None:
        self.batcher = batcher
        self._engine = engine
        self._steps: deque[tuple[Plan, PendingStep]] = deque()
        self.failures: list[str] = []  # why outputs could not go on

    def turn(self) -> bool:
        """One plan, if there is one, and at most one commit; False when there is nothing to do."""
        plan = self.batcher.plan(0.0)
        if plan is not None:
            self._steps.append((plan, self._engine.launch(elsewhere(plan.batch))))
        if len(self._steps) > (self._engine.ahead if plan is not None else 0):
            done, pending = self._steps.popleft()
            progress = self.batcher.commit(done, pending.wait())
            self.failures += [each.failure for each in progress if each.failure]
            plan = done
        self.batcher.check_invariants()
        return plan is not None


def run(batcher: Batcher, engine: Engine, requests: Sequence[Request]) -> list[list[int]]:
    """The output tokens of each request, all submitted at once; each output goes on to its end."""
    for request in requests:
        batcher.queue.submit(request, 0.0)
    driver = Driver(batcher, engine)
    while driver.turn():
        pass
    assert not driver.failures, driver.failures
    assert not batcher.queue.running
    return [request.tokens[request.prompt_tokens :] for request in requests]

"""A worker's batcher and its requests, for benchmarks of the engine and of the work around it."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from fairlead.token_ids import pack_ids
from local_worker.core.batch import Engine, PendingStep
from local_worker.core.batcher import Batcher
from local_worker.core.events import RequestTokens
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Plan
from local_worker.core.policies import POLICIES, QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests
from serving.constraint import Constraint
from serving.cost import WeightedTokens
from serving.sampling_params import SamplingParams

BLOCK = 16
KV_TOKENS = 64 * 512
PROMPT_TOKENS = 64


def make_batcher(block_tokens: int = BLOCK) -> Batcher:
    """Make a batcher as a worker does, large enough for every case, with pages of `block_tokens`."""
    cost = WeightedTokens()
    config = QueuePolicyConfig(
        quantum_tokens=512,
        cost=cost,
        max_input_tokens=4096,
        max_output_tokens=KV_TOKENS,
        block_tokens=block_tokens,
        most_output_tokens=KV_TOKENS,
    )
    limits = BatchLimits(
        max_running=64, token_budget=512, max_prompt_tokens=4096, max_waiting=1000, max_waiting_per_client=1000
    )
    cache = PrefixCache(KV_TOKENS // block_tokens, block_tokens)
    return Batcher(RequestQueue(POLICIES["dlpm"](config), cache, cost, limits), ())


def make_request(
    prompt: Sequence[int],
    new_tokens: int,
    number: int,
    block_tokens: int = BLOCK,
    constraint: Constraint | None = None,
) -> Request:
    """Make a greedy request of one of eight clients."""
    return Request(
        id=str(number),
        client=f"c{number % 8}",
        tokens=list(prompt),
        prompt_tokens=len(prompt),
        digests=list(unpack_digests(chain(pack_ids(prompt), block_tokens, 1))),
        chain_seed=1,
        sampling=SamplingParams(max_tokens=new_tokens, ignore_eos=constraint is None, constraint=constraint),
        arrival=number,
    )


def steps(
    engine: Engine, batcher: Batcher, clock: Callable[[], float] = lambda: 0.0
) -> Iterator[Sequence[RequestTokens]]:
    """Run steps as a worker's loop does until nothing is left to compute; yield the progress at each commit.

    `clock` returns the seconds that have passed; without one it is always zero. A consumer that stops early leaves the
    steps that are in flight uncommitted.
    """
    launched: deque[tuple[Plan, PendingStep]] = deque()
    while (plan := batcher.plan(clock())) is not None or launched:
        if plan is not None:
            launched.append((plan, engine.launch(plan.batch)))
        if len(launched) > (engine.ahead if plan is not None else 0):
            done, pending = launched.popleft()
            yield batcher.commit(done, pending.wait())

"""What the papers claim of policies without a bound, beside DLPM: two users who always have requests waiting.

The same two users as in tests/unit/local_worker/test_policies_on_a_stack.py: one floods with four times as many
requests at a time. Each user's prompts share a long prefix, and the cache has room for one of the two beside what is
running.
"""

from itertools import count

from local_worker.core.batcher import Batcher
from local_worker.core.request import Request
from serving.cost import MICRO, Normalized, WeightedTokens
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.core.test_batcher import tokens_for
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request

PREFIX = {"flood": [1] * (10 * BLOCK), "meek": [2] * (10 * BLOCK)}
PARALLEL = {"flood": 32, "meek": 8}
TAIL, OUTPUT, CALLS = 2, 2, 500


def serve(policy: str) -> Batcher:
    """Both users in closed loops until CALLS calls have been made."""
    batcher = make_batcher(
        pages=16,
        token_budget=64,
        max_running=3,
        max_prompt_tokens=10 * BLOCK + TAIL,
        max_output_tokens=16 * BLOCK,
        quantum_tokens=64,
        most_debt_tokens=64,
        policy=policy,
        cost=Normalized() if policy == "wsc" else WeightedTokens(),
    )
    numbers, here = count(), list[Request]()

    def ask(client: str) -> None:
        number = next(numbers)
        sampling = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
        request = make_request([*PREFIX[client], 1000 + number, 3], arrival=number, sampling=sampling)
        request.client = client
        batcher.queue.submit(request, 0.0)
        here.append(request)

    for client, parallel in PARALLEL.items():
        for _ in range(parallel):
            ask(client)
    while here[-1].arrival < CALLS:
        plan = batcher.plan(0.0)
        assert plan is not None
        batcher.commit(plan, tokens_for(plan))
        for request in [each for each in here if each.output_tokens >= OUTPUT]:
            here.remove(request)
            ask(request.client)
    return batcher


def hit_rate(batcher: Batcher) -> float:
    return batcher.queue.ledger.cached_tokens / batcher.queue.ledger.prompt_tokens


def test_baselines_without_a_bound_are_ordered_as_the_papers_claim() -> None:
    served = {name: serve(name) for name in ("fcfs", "lpm", "vtc", "wsc", "dlpm")}
    for name, batcher in served.items():
        print(f"{name:<5} gap {batcher.queue.ledger.worst_gap / MICRO:,.0f}, hit rate {hit_rate(batcher):.1%}")
    dlpm, lpm, wsc = served["dlpm"], served["lpm"], served["wsc"]
    bound = dlpm.queue.policy.bound_micro
    assert bound is not None
    assert dlpm.queue.ledger.worst_gap <= bound < served["fcfs"].queue.ledger.worst_gap
    assert bound < lpm.queue.ledger.worst_gap
    assert wsc.queue.ledger.worst_gap <= bound
    assert hit_rate(dlpm) >= 0.9 * hit_rate(lpm)
    assert hit_rate(wsc) < hit_rate(dlpm)

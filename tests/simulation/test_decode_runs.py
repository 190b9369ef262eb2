"""A run of several decoding steps counts and ends as the same tokens one by one."""

from fairlead.outcomes import FinishReason
from local_worker.core.limits import BatchLimits
from local_worker.core.policies import QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams
from simulation.decode_runs import RunBatcher
from simulation.spec import LOCAL_POLICIES
from tests.local_worker.engine.driving import BLOCK, make_request

EOS = 9


def test_a_run_is_charged_by_its_tokens_and_ends_with_its_last() -> None:
    cost = WeightedTokens()
    config = QueuePolicyConfig(
        quantum_tokens=64,
        cost=cost,
        max_input_tokens=16,
        max_output_tokens=16,
        most_output_tokens=32,
        block_tokens=BLOCK,
    )
    limits = BatchLimits(max_running=2, token_budget=16, max_prompt_tokens=16, max_waiting=2, max_waiting_per_client=2)
    batcher = RunBatcher(LOCAL_POLICIES["lcf"](config), PrefixCache(16, BLOCK), cost, limits, (EOS,), decode_run=2)
    for arrival in range(2):
        batcher.submit(make_request([1], arrival=arrival, sampling=SamplingParams(max_tokens=8)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    ends, goes_on = batcher.commit_run(plan, [(5, EOS), (EOS, 5)])
    assert (ends.finish, goes_on.finish) == (FinishReason.STOP, None)
    assert batcher.policy.balance("c0") == batcher.policy.balance("c1") == (1 + 2 * 2) * MICRO

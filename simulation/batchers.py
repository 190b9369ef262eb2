"""A worker's core, made from its specification."""

from local_worker.core.limits import Limits
from local_worker.core.prefix_cache import PrefixCache
from simulation.decode_runs import RunBatcher
from simulation.prompts import EOS
from simulation.slora import RevisedSloraBatcher, SloraBatcher
from simulation.spec import Engine, WorkerSpec


def make_batcher(spec: WorkerSpec) -> RunBatcher:
    """An empty queue, batch and cache."""
    limits = Limits(
        max_running=spec.max_running,
        token_budget=spec.token_budget,
        max_prompt_tokens=spec.max_prompt_tokens,
        max_waiting=spec.max_waiting,
        max_waiting_per_client=spec.max_waiting,
        admission=spec.admission,
    )
    policy, cost = spec.make_policy(), spec.make_cost()
    if spec.engine in (Engine.SLORA, Engine.SLORA_REVISED):
        # Its pages held one token. Ours are larger, for speed: what rounding up takes is added.
        cache = PrefixCache(spec.kv_tokens // spec.block_tokens + spec.max_running, spec.block_tokens)
        slora = SloraBatcher if spec.engine is Engine.SLORA else RevisedSloraBatcher
        return slora(policy, cache, cost, limits, [EOS], spec.kv_tokens)
    cache = PrefixCache(spec.kv_tokens // spec.block_tokens, spec.block_tokens)
    return RunBatcher(policy, cache, cost, limits, [EOS], spec.decode_run)

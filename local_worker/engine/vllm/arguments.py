"""The arguments with which vLLM's executor is built: those of the operator, and those that the worker decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from vllm.config import VllmConfig
from vllm.config.lora import MaxLoRARanks
from vllm.engine.arg_utils import EngineArgs
from vllm.version import __version__

from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.load_errors import reading
from local_worker.engine.lora_adapter import LoraAdapter
from local_worker.engine.vllm.sampler import KEY

# Arguments that an option of the worker sets.
SET_BY_OPTION = {
    "model": "model",
    "served_model_name": "served_name",
    "dtype": "dtype",
    "block_size": "block_tokens",
    "num_gpu_blocks_override": "kv_tokens",
    "max_num_seqs": "max_running",
    "max_num_batched_tokens": "token_budget",
    "gpu_memory_utilization": "memory_fraction",
    "enable_lora": "lora",
    "max_loras": "lora",
    "max_cpu_loras": "lora",
    "max_lora_rank": "lora",
}
# Arguments of vLLM's scheduler and frontends, which do not run, and of features that batches cannot describe.
NOT_SUPPORTED = (
    "async_scheduling",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enable_prompt_embeds",
    "kv_transfer_config",
    "logits_processors",
    "runner",
    "scheduler_cls",
    "scheduling_policy",
    "speculative_config",
    "tokenizer",
)
# By model runner: V2's base class is not in 0.30, and V1's will not stay.
PROCESSORS = {
    "v1": "local_worker.engine.vllm.processor_v1:RowProcessor",
    "v2": "local_worker.engine.vllm.processor_v2:SlotProcessor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """The options with which vLLM runs a model."""

    max_running: int  # largest number of requests in a batch
    token_budget: int  # largest number of tokens in a batch
    block_tokens: int | None = None  # None: as vLLM chooses
    kv_tokens: int | None = None  # None: as many as fit by vLLM's profile of the memory
    memory_fraction: float = 0.5  # part of the device's memory for weights, activations and KV cache
    dtype: str = "auto"
    eos_token_ids: tuple[int, ...] = ()
    adapters: tuple[LoraAdapter, ...] = ()
    runner: str = "v1"  # the model runner that vLLM has to choose


def engine_config(model: str, options: VllmOptions, given: Mapping[str, Any], *, headless: bool = False) -> VllmConfig:
    """Return vLLM's configuration, for the first node or for a further one (`headless`).

    Raises UnsupportedModel for a model or an argument that vLLM or this engine does not support.
    """
    args = _engine_args(model, options, given)
    with reading():
        config = args.create_engine_config(headless=headless)
    chosen = "v2" if config.use_v2_model_runner else "v1"
    if chosen != options.runner:
        raise UnsupportedModel(
            f"vLLM {__version__} chooses its model runner {chosen} for this model and these vllm_args, "
            f"not {options.runner} (vllm_runner)"
        )
    if chosen == "v2" and config.parallel_config.pipeline_parallel_size > 1:
        # A stage takes a request's token as many steps after it was sampled as there are stages.
        raise UnsupportedModel("vllm_args: pipeline_parallel_size: must be 1 with vLLM's model runner v2 (vllm_runner)")
    return config


def _engine_args(model: str, options: VllmOptions, given: Mapping[str, Any]) -> EngineArgs:
    """Return vLLM's arguments; raise UnsupportedModel, which names the argument, for one that cannot be `given`."""
    known = {field.name for field in fields(EngineArgs)}
    for name in given:
        if name in SET_BY_OPTION:
            raise UnsupportedModel(f"vllm_args: {name}: is set by the option {SET_BY_OPTION[name]}")
        if name in NOT_SUPPORTED:
            raise UnsupportedModel(f"vllm_args: {name}: is not supported")
        if name not in known:
            raise UnsupportedModel(f"vllm_args: {name}: vLLM has no such argument")
    decided: dict[str, Any] = {
        "model": model,
        "dtype": options.dtype,
        "block_size": options.block_tokens,
        "max_num_seqs": options.max_running,
        "max_num_batched_tokens": options.token_budget,
        "gpu_memory_utilization": options.memory_fraction,
        "max_model_len": -1,  # as long as the KV cache allows
        "skip_tokenizer_init": True,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "disable_hybrid_kv_cache_manager": True,  # every layer keeps the pages of the whole context
        "logits_processors": [PROCESSORS[options.runner]],
    }
    if options.adapters:
        # One place more than adapters: vLLM 0.32 on a CPU computes a request without one, whose index is -1, with the
        # adapter in the last place if others in the batch have adapters. There are zeros in it now.
        places = len(options.adapters) + 1
        decided |= {"enable_lora": True, "max_loras": places, "max_lora_rank": _rank(options.adapters)}
    additional = {**given.get("additional_config", {}), KEY: list(options.eos_token_ids)}
    return EngineArgs(**(decided | dict(given) | {"additional_config": additional}))


def _rank(adapters: Sequence[LoraAdapter]) -> int:
    """Return the least rank that vLLM has buffers for and that none of the adapters exceeds."""
    ranks: list[int] = sorted(get_args(MaxLoRARanks))
    largest = max(adapters, key=lambda adapter: adapter.rank)
    if largest.rank > ranks[-1]:
        raise UnsupportedModel(f"lora: {largest.name}: its rank must be at most {ranks[-1]}, got {largest.rank}")
    return next(rank for rank in ranks if rank >= largest.rank)

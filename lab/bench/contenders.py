"""The engines that `lab.bench.engine` compares: the worker's, `model.generate` and transformers' continuous batches."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from lab.bench.batcher import BLOCK, KV_TOKENS, make_batcher, make_request, steps
from local_worker.core.batch import Engine
from local_worker.engine.runner import EngineOptions, TransformersEngine

OPTIONS = EngineOptions(block_tokens=BLOCK, kv_tokens=KV_TOKENS)
Run = Callable[[Sequence[Sequence[int]], int], object]  # prompts, new tokens


def fairlead(model: Any) -> Run:
    """Return a run of our engine, driven by the core as in a worker."""
    return partial(drive, TransformersEngine(model, OPTIONS))


def drive(
    engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int, block_tokens: int = BLOCK
) -> list[list[int]]:
    """Run the prompts and return the output tokens of each."""
    batcher = make_batcher(block_tokens)
    requests = [make_request(prompt, new_tokens, number, block_tokens) for number, prompt in enumerate(prompts)]
    for request in requests:
        batcher.queue.submit(request, 0.0)
    for _ in steps(engine, batcher):
        pass
    return [request.tokens[request.prompt_tokens :] for request in requests]


def generate(model: Any) -> Run:
    """Return a run of transformers' own loop over a rectangular batch; equal lengths are its best case."""

    def run(prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        ids = torch.tensor(prompts, device=model.device)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )

    return run


def continuous_batching(model: Any) -> Run:
    """Return a run of transformers' continuous batching with our page and batch sizes."""
    # transformers 5.17 calls it block_size.
    page_size = "page_size" if hasattr(ContinuousBatchingConfig, "page_size") else "block_size"
    sizes: dict[str, Any] = {page_size: BLOCK, "num_blocks": KV_TOKENS // BLOCK, "max_batch_tokens": 512}
    config = ContinuousBatchingConfig(**sizes)

    def run(prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        generation = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        outputs = model.generate_batch(
            [list(prompt) for prompt in prompts], generation_config=generation, continuous_batching_config=config
        )
        counts = [len(output.generated_tokens) for output in outputs.values()]
        assert counts == [new_tokens] * len(prompts), counts

    return run


CONTENDERS: Mapping[str, Callable[[Any], Run]] = {
    "fairlead": fairlead,
    "generate": generate,
    "continuous batching": continuous_batching,
}

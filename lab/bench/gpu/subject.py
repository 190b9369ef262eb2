"""The engine that all checks measure: one model of random weights on the device, made when a check first needs it."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from lab.bench.batcher import BLOCK
from lab.bench.gpu.ceilings import Ceilings
from lab.bench.gpu.scale import Heads, Scale
from lab.bench.gpu.step_work import StepWork
from lab.bench.shapes import random_model
from local_worker.core.batch import Slice
from local_worker.engine.batch_inputs import lone_slice
from local_worker.engine.runner import EngineOptions, TransformersEngine

TOKEN = 7  # whose embedding does not matter
ROUNDS = 3


class Subject:
    """The device, the model's engine, and the device's ceilings; `out` is the folder for logs of checks."""

    def __init__(self, scale: Scale, out: Path) -> None:
        self.scale = scale
        self.out = out
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32

    @cached_property
    def ceilings(self) -> Ceilings:
        """The rates of a large copy and of a large matrix product."""
        return Ceilings.measure(self.device, self.dtype, self.scale.copy_bytes, self.scale.matrix)

    @cached_property
    def engine(self) -> TransformersEngine:
        """The engine with the model of the scale's shape."""
        model = random_model(self.scale.shape, self.device, self.dtype)
        options = EngineOptions(block_tokens=BLOCK, kv_tokens=self.scale.kv_tokens, max_running=max(self.scale.batches))
        return TransformersEngine(model, options)

    def work(self, slices: Sequence[Slice]) -> StepWork:
        """Return the least work of a step of this engine."""
        return StepWork.of(self._skeleton, slices)

    @cached_property
    def _skeleton(self) -> Any:
        """The model without weights; the engine may have stored its own in another form."""
        return random_model(self.scale.shape, "meta", self.dtype)

    def engine_with(self, heads: Heads) -> TransformersEngine:
        """Make an engine with a model of few layers that has these attention heads."""
        with torch.device(self.device):
            model: Any = AutoModelForCausalLM.from_config(few_layers(heads), dtype=self.dtype)  # type: ignore[no-untyped-call]
        longest = max(sum(prefill) for prefill in self.scale.few_heads_prefills)
        return TransformersEngine(model, EngineOptions(block_tokens=BLOCK, kv_tokens=2 * longest, max_running=1))

    @torch.inference_mode()
    def step_seconds(self, engine: TransformersEngine, slices: Sequence[Slice]) -> float:
        """Return the seconds of a forward pass of `slices`, when passes follow each other without a pause."""
        return self._seconds(lambda: engine._logits(slices))

    def _seconds(self, step: Callable[[], object]) -> float:
        step()
        rounds = []
        for _ in range(ROUNDS):
            self._synchronize()
            began = time.perf_counter()
            for _ in range(self.scale.repeats):
                step()
            self._synchronize()
            rounds.append((time.perf_counter() - began) / self.scale.repeats)
        return statistics.median(rounds)

    def release(self) -> None:
        """Give memory of the device that is not in use back to it, for other processes."""
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def few_layers(heads: Heads) -> LlamaConfig:
    """Return the configuration of a small model with these attention heads."""
    return LlamaConfig(
        vocab_size=1024,
        hidden_size=8 * heads.queries,  # has to be a multiple of their number
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=heads.queries,
        num_key_value_heads=heads.keys,
        head_dim=heads.size,
        max_position_embeddings=8192,
    )


def decoding(requests: int, context: int) -> list[Slice]:
    """Return the slices of a step in which `requests` with `context` tokens each decode, on pages of their own."""
    return [lone_slice([TOKEN] * context, context - 1, pages, samples=True) for pages in _pages(requests, context)]


def prefill(new: int, cached: int, first_page: int = 0) -> Slice:
    """Return the slice of a prompt of which `cached` tokens are in the cache and `new` ones are computed."""
    (pages,) = _pages(1, cached + new, first_page)
    return lone_slice([TOKEN] * (cached + new), cached, pages, samples=True)


def _pages(requests: int, tokens: int, first: int = 0) -> list[range]:
    each = -(-tokens // BLOCK)
    return [range(first + number * each, first + (number + 1) * each) for number in range(requests)]

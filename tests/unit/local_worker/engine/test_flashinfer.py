"""How FlashInfer is used, with a stand-in that is as strict: the same tokens and logits as by SDPA.

What only a CUDA device shows is in tests/system/gpu.
"""

import importlib
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig

from local_worker.core.batch import Slice
from local_worker.engine.batch_inputs import BatchInputs, lone_slice
from local_worker.engine.graph_sizes import GraphSize, graph_sizes, idle_slices
from local_worker.engine.runner import TransformersEngine
from local_worker.engine.sdpa import Sdpa
from local_worker.engine.varlen import Varlen
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request, run
from tests.unit.local_worker.engine.flashinfer_stand_in import PROCESSORS, stand_in
from tests.unit.local_worker.engine.test_exactness import CONFIGS, OPTIONS, SIZES, generate, make_model, prompts

pytestmark = pytest.mark.slow

MODULE = "local_worker.engine.flashinfer"
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {name: CONFIGS[name] for name in ("llama", "llama-mqa", "mistral-window", "gpt-oss", "mimo-v2-flash")}
MODELS["gemma3"] = Gemma3TextConfig(**SIZES, sliding_window=10, layer_types=KINDS)


@cache
def expected(name: str) -> list[list[int]]:
    oracle = make_model(deepcopy(MODELS[name]))
    return [generate(oracle, text) for text in prompts(6)]


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Our module, over the stand-in."""
    monkeypatch.setitem(sys.modules, "flashinfer", stand_in())
    yield importlib.import_module(MODULE)
    del sys.modules[MODULE]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_mixed_batches_give_the_models_tokens(name: str, ahead: int, flashinfer: Any) -> None:
    engine = TransformersEngine(make_model(MODELS[name]), OPTIONS)
    backend = flashinfer.FlashInfer(engine._kv, PROCESSORS, ())
    engine._attention._backend, engine.ahead = backend, ahead
    requests = [make_request(text, arrival=number) for number, text in enumerate(prompts(6))]
    assert run(make_batcher(token_budget=11), engine, requests) == expected(name)
    windows = {"gemma3": 2, "gpt-oss": 2, "mimo-v2-flash": 2}
    assert len(backend.kinds) == windows.get(name, 1), "one plan per kind of layer"
    plans = {wrapper.plans for wrapper in backend._wrappers.values()}
    assert len(plans) == 1, "each kind is planned once per step, whichever layer comes first"


class Graph:
    """The tensors and the plans of a graph of `size`, whose forward pass is launched anew each time."""

    def __init__(self, module: Any, engine: TransformersEngine, backend: Any, size: GraphSize) -> None:
        self._engine = engine
        self._backend = module.FlashInferGraph(backend, engine._kv, size, 16)
        slices = idle_slices(size, engine._kv)
        self._inputs = BatchInputs(slices, engine._kv)
        self._backend.plan(slices)

    def logits(self, slices: list[Slice]) -> torch.Tensor:
        inputs = BatchInputs(slices, self._engine._kv)
        self._inputs.overwrite(inputs, self._engine._kv.spare_slot)
        with self._engine._attention.using(self._backend):
            self._engine._attention.plan(inputs.slices, self._inputs.slots)
            return self._engine._forward(self._inputs)[: len(inputs.rows)]


@torch.inference_mode()
@pytest.mark.parametrize("name", MODELS)
def test_small_steps_in_fixed_buffers_give_the_logits_of_sdpa(name: str, flashinfer: Any) -> None:
    engine = TransformersEngine(make_model(MODELS[name]), OPTIONS)
    sizes = (GraphSize(6, 6), GraphSize(6, 20))
    backend = flashinfer.FlashInfer(engine._kv, PROCESSORS, sizes)
    texts = prompts(5)
    pages = [range(16 * number, 16 * number + 16) for number in range(5)]
    with engine._attention.using(backend):
        engine._logits([lone_slice(text, 0, own, samples=True) for text, own in zip(texts, pages, strict=True)])
    decoding, mixed = (Graph(flashinfer, engine, backend, size) for size in sizes)

    def slices(count: int, *chunks: int) -> list[Slice]:
        grown = [[*text, *range(5, 5 + chunk)] for text, chunk in zip(texts, chunks or [1] * count, strict=False)]
        starts = [len(text) for text in texts]
        return [
            lone_slice(text, start, own, samples=True)
            for text, start, own in zip(grown[:count], starts[:count], pages[:count], strict=True)
        ]

    assert isinstance(engine._attention._backend, Sdpa)
    for batch in (slices(5), slices(2), slices(4)):  # the contents of longer batches before it do not matter
        torch.testing.assert_close(decoding.logits(batch), engine._logits(batch), atol=1e-4, rtol=1e-4)
    for batch in (slices(5, 1, 9, 1, 7, 1), slices(2, 1, 2), slices(4, 1, 1, 17, 1), slices(1, 20)):
        torch.testing.assert_close(mixed.logits(batch), engine._logits(batch), atol=1e-4, rtol=1e-4)


def test_a_batch_for_a_capture_has_exactly_its_size_and_writes_to_the_spare_page_alone() -> None:
    engine = TransformersEngine(make_model(CONFIGS["llama"]), OPTIONS)
    for size in graph_sizes(5, engine.max_model_tokens):
        inputs = BatchInputs(idle_slices(size, engine._kv), engine._kv)
        assert (len(inputs.slices), len(inputs.slots), len(inputs.rows)) == (size.requests, size.tokens, size.requests)
        assert {slot // BLOCK for slot in inputs.slots.tolist()} == {engine._kv.spare_page}
    assert engine._kv.keys[0].shape[0] == engine._kv.spare_page + 1


def test_sizes_of_graphs_hold_the_running_requests_and_fit_in_the_context() -> None:
    assert graph_sizes(5, 256) == ((1, 1), (2, 2), (4, 4), (8, 8), (8, 128), (8, 256))
    assert graph_sizes(100, 1 << 17)[-5:] == ((128, 128), (128, 256), (128, 384), (128, 512), (128, 768))
    assert graph_sizes(1000, 1 << 17)[-1] == (128, 768)


def test_torch_computes_attention_where_flashinfer_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    config = LlamaConfig(**SIZES | {"head_dim": 64})  # FlashInfer has kernels for it
    engine = TransformersEngine(make_model(config).to(torch.bfloat16), OPTIONS)
    engine._device = torch.device("cuda")
    with caplog.at_level("WARNING"):
        assert isinstance(engine._backend(), Sdpa | Varlen)
    assert "FlashInfer cannot be imported" in caplog.text

"""How FlashInfer is used, with a stand-in that is as strict: the same tokens and logits as by SDPA.

What only a CUDA device shows is in tests/gpu.
"""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig

from local_worker.engine.batch_inputs import BatchInputs, lone_slice
from local_worker.engine.runner import TransformersEngine
from local_worker.engine.sdpa import Sdpa
from tests.local_worker.engine.driving import BLOCK, make_batcher, make_request, run
from tests.local_worker.engine.flashinfer_stand_in import stand_in
from tests.local_worker.engine.test_exactness import CONFIGS, OPTIONS, SIZES, generate, make_model, prompts

pytestmark = pytest.mark.slow

MODULE = "local_worker.engine.flashinfer"
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {name: CONFIGS[name] for name in ("llama", "llama-mqa", "mistral-window")}
MODELS["gemma3"] = Gemma3TextConfig(**SIZES, sliding_window=10, layer_types=KINDS)


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Our module, over the stand-in."""
    monkeypatch.setitem(sys.modules, "flashinfer", stand_in())
    yield importlib.import_module(MODULE)
    del sys.modules[MODULE]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_mixed_batches_give_the_models_tokens(name: str, ahead: int, flashinfer: Any) -> None:
    texts = prompts(6)
    oracle = make_model(MODELS[name])
    expected = [generate(oracle, text) for text in texts]
    engine = TransformersEngine(make_model(MODELS[name]), OPTIONS)
    backend = flashinfer.FlashInfer(engine._kv)
    engine._attention._backend, engine.ahead = backend, ahead
    requests = [make_request(text, arrival=number) for number, text in enumerate(texts)]
    assert run(make_batcher(token_budget=11), engine, requests) == expected
    assert len(backend.kinds) == (2 if name == "gemma3" else 1), "one plan per kind of layer"
    plans = {wrapper.plans for wrapper in backend._wrappers.values()}
    assert len(plans) == 1, "each kind is planned once per step, whichever layer comes first"


@torch.inference_mode()
@pytest.mark.parametrize("name", MODELS)
def test_decoding_in_fixed_buffers_with_padding_gives_the_logits_of_sdpa(name: str, flashinfer: Any) -> None:
    engine = TransformersEngine(make_model(MODELS[name]), OPTIONS)
    texts = prompts(5)
    prefill = flashinfer.FlashInfer(engine._kv)
    pages = [range(16 * number, 16 * number + 16) for number in range(5)]
    with engine._attention.using(prefill):
        engine._logits([lone_slice(text, 0, own, samples=True) for text, own in zip(texts, pages, strict=True)])
    decode = flashinfer.FlashInferDecode(engine._kv, prefill.kinds, prefill.workspace, 8, 16)
    idle = lone_slice([0], 0, [engine._kv.spare_page], samples=True)
    for count in (5, 2, 4):  # what an earlier, longer batch left in the buffers does not matter
        slices = [
            lone_slice([*text, 5], len(text), own, samples=True)
            for text, own in zip(texts[:count], pages[:count], strict=True)
        ]
        assert isinstance(engine._attention._backend, Sdpa)
        expected = engine._logits(slices)
        inputs = BatchInputs([*slices, *[idle] * (8 - count)], engine._kv)
        with engine._attention.using(decode):
            engine._attention.plan(inputs.slices, inputs.slots)
            found = engine._forward(inputs)[:count]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_padding_writes_to_the_spare_page_alone() -> None:
    engine = TransformersEngine(make_model(CONFIGS["llama"]), OPTIONS)
    inputs = BatchInputs([lone_slice([0], 0, [engine._kv.spare_page], samples=True)] * 4, engine._kv)
    assert set(inputs.slots.tolist()) == {engine._kv.spare_page * BLOCK}
    assert engine._kv.keys[0].shape[0] == engine._kv.spare_page + 1

"""The engine on a CUDA device: FlashInfer and CUDA graphs against torch's SDPA over the same pages."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from local_worker.core.batch import Slice
from local_worker.engine.packing import lone_slice
from local_worker.engine.runner import EngineOptions, TransformersEngine
from local_worker.engine.sdpa import Sdpa
from tests.local_worker.engine.driving import make_batcher, make_request, run
from tests.local_worker.engine.test_exactness import CONFIGS, make_model, prompts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
needs_flashinfer = pytest.mark.skipif(find_spec("flashinfer") is None, reason="needs flashinfer")
PAGE = 16
NAMES = ["llama", "llama-mha", "qwen2", "qwen3", "mistral-window", "llama-tied"]
TOLERANCE = 3e-2  # of the largest logit: bfloat16 carries eight bits


def make_engine(name: str) -> TransformersEngine:
    config = CONFIGS[name]
    config.head_dim = 64  # FlashInfer's kernels come in powers of two from 64
    model = make_model(config).to("cuda", torch.bfloat16)
    return TransformersEngine(model, EngineOptions(kv_tokens=2048, block_tokens=PAGE))


def batches() -> Iterator[list[Slice]]:
    """A mixed batch, then one in which everybody decodes."""
    texts = prompts(5)
    pages = [range(8 * number, 8 * number + 8) for number in range(5)]
    yield [
        lone_slice(text, 0, own, samples=number != 2)
        for number, (text, own) in enumerate(zip(texts, pages, strict=True))
    ]
    yield [lone_slice([*text, 5], len(text), own, samples=True) for text, own in zip(texts, pages, strict=True)]


@needs_flashinfer
@pytest.mark.parametrize("name", NAMES)
def test_flashinfer_and_its_graphs_agree_with_sdpa(name: str) -> None:
    fast, oracle = make_engine(name), make_engine(name)
    oracle._attention._backend, oracle._graphs = Sdpa(oracle._kv), None
    with torch.inference_mode():
        for slices in batches():
            found, expected = fast._logits(slices).float(), oracle._logits(slices).float()
            assert float((found - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


def test_float32_on_the_device_gives_the_tokens_of_the_processor() -> None:
    texts = prompts(6)
    requests = [make_request(text, arrival=number) for number, text in enumerate(texts)]
    expected = run(
        make_batcher(),
        TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(kv_tokens=2048, block_tokens=4)),
        requests,
    )
    engine = TransformersEngine(make_model(CONFIGS["llama"]).to("cuda"), EngineOptions(kv_tokens=2048, block_tokens=4))
    again = [make_request(text, arrival=number) for number, text in enumerate(texts)]
    assert run(make_batcher(), engine, again) == expected

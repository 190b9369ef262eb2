"""The engine on a CUDA device: FlashInfer and its graphs against torch's SDPA over the same pages; running ahead."""

import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from inspect import signature
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from local_worker.core.batch import Slice
from local_worker.core.request import Request
from local_worker.engine.batch_inputs import lone_slice
from local_worker.engine.runner import EngineOptions, TransformersEngine
from local_worker.engine.sdpa import Sdpa
from local_worker.engine.varlen import Varlen
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request, run
from tests.unit.local_worker.engine.test_exactness import CONFIGS, make_model, prompts

pytestmark = [
    pytest.mark.gpu,
    # A string is a condition of the process that runs the tests: CUDA does not survive a fork.
    pytest.mark.skipif("not torch.cuda.is_available()", reason="needs a CUDA device"),
]
needs_gqa = pytest.mark.skipif("enable_gqa" not in signature(varlen_attn).parameters, reason="this torch has no kernel")
needs_flashinfer = pytest.mark.skipif(find_spec("flashinfer") is None, reason="needs flashinfer")
PAGE = 16
NAMES = ["llama", "llama-mha", "llama-mqa", "qwen2", "qwen3", "mistral-window", "gemma3", "llama-tied", "granite-swa"]
TOLERANCE = 3e-2  # of the largest logit: bfloat16 carries eight bits


def make_engine(name: str, block_tokens: int = PAGE, head: int = 64) -> TransformersEngine:
    """In bfloat16, as FlashInfer has it, whose kernels come in powers of two from 64."""
    config = deepcopy(CONFIGS[name])
    config.head_dim = head
    # Graphs of 1, 2, 4 and 8 requests are captured, and of 8 requests with 128 and 256 tokens.
    options = EngineOptions(kv_tokens=4096, block_tokens=block_tokens, max_running=8)
    return TransformersEngine(make_model(config).to("cuda", torch.bfloat16), options)


def without_flashinfer(engine: TransformersEngine, backend: type[Sdpa | Varlen] = Sdpa) -> TransformersEngine:
    engine._attention._backend, engine._graphs = backend(engine._kv), None
    return engine


def make_requests(count: int, **sampling: Any) -> list[Request]:
    chosen = SamplingParams(**{"max_tokens": 12, "ignore_eos": True, **sampling})
    return [make_request(text, arrival=number, sampling=chosen) for number, text in enumerate(prompts(count))]


def batches() -> Iterator[list[Slice]]:
    """Prompts; a token beside later chunks: more requests than a graph has, and fewer; decoding alone: fewer than a
    graph has, as many, and more."""
    texts = [(text, range(8 * number, 8 * number + 8)) for number, text in enumerate(prompts(12))]
    yield [lone_slice(text, 0, pages, samples=number != 2) for number, (text, pages) in enumerate(texts)]
    chunks = [[5] if number % 3 else [5, 7, 8, 9] for number in range(12)]
    grown = [([*text, *chunk], pages) for (text, pages), chunk in zip(texts, chunks, strict=True)]
    yield [
        lone_slice(text, len(text) - len(chunk), pages, samples=True)
        for (text, pages), chunk in zip(grown, chunks, strict=True)
    ]
    yield [
        lone_slice([*text, *range(5, 5 + number)], len(text), pages, samples=True)
        for number, (text, pages) in enumerate(grown[:6], 1)
    ]
    for count in (1, 2, 3, 7, 8, 12):
        yield [lone_slice([*text, 6], len(text), pages, samples=True) for text, pages in grown[:count]]


@needs_flashinfer
@pytest.mark.parametrize(("name", "head"), [*((name, 64) for name in NAMES), ("llama", 128), ("llama", 256)])
def test_flashinfer_and_its_graphs_agree_with_sdpa(name: str, head: int) -> None:
    fast, oracle = make_engine(name, head=head), without_flashinfer(make_engine(name, head=head))
    assert fast._graphs is not None
    with torch.inference_mode():
        for slices in batches():
            found, expected = fast._logits(slices).float(), oracle._logits(slices).float()
            assert found.shape == expected.shape
            assert float((found - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


def test_float32_on_the_device_gives_the_tokens_of_the_processor() -> None:
    options = EngineOptions(kv_tokens=2048, block_tokens=BLOCK)
    expected = run(make_batcher(), TransformersEngine(make_model(CONFIGS["llama"]), options), make_requests(6))
    engine = TransformersEngine(make_model(CONFIGS["llama"]).to("cuda"), options)
    for engine.ahead in (0, 1):
        assert run(make_batcher(token_budget=24), engine, make_requests(6)) == expected


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 3},
    "truncated": {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "seed": 4},
    "penalised": {"frequency_penalty": 1.0, "repetition_penalty": 1.5, "min_tokens": 4, "ignore_eos": False},
    "logprobs": {"logprobs": 3},
}


@needs_flashinfer
@pytest.mark.parametrize("way", WAYS)
def test_running_ahead_changes_no_token(way: str) -> None:
    # All enter in the first steps and end together: the same batches either way, so that bfloat16 rounds alike.
    engine, outputs = make_engine("llama", BLOCK), []
    for engine.ahead in (0, 1):
        outputs.append(run(make_batcher(pages=256), engine, make_requests(7, **WAYS[way])))
    assert outputs[0] == outputs[1]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "backend",
    [pytest.param(None, marks=needs_flashinfer, id="flashinfer"), Sdpa, pytest.param(Varlen, marks=needs_gqa)],
)
def test_launching_a_step_never_waits_for_the_device(backend: type[Sdpa | Varlen] | None, way: str) -> None:
    engine = make_engine("llama", BLOCK)
    if backend is not None:
        without_flashinfer(engine, backend)
    batcher = make_batcher(pages=256)
    for request in make_requests(7, **WAYS[way]):
        batcher.queue.submit(request, 0.0)
    steps: list[Any] = []
    while len(steps) < 8 and (plan := batcher.plan(0.0)) is not None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps.append((plan, engine.launch(plan.batch)))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        if len(steps) > 1:
            done, pending = steps[-2]
            batcher.commit(done, pending.wait())
    assert len(steps) == 8


@needs_gqa
@pytest.mark.parametrize("name", NAMES)
def test_gathered_contexts_agree_with_sdpa(name: str) -> None:
    gathering, oracle = without_flashinfer(make_engine(name), Varlen), without_flashinfer(make_engine(name))
    with torch.inference_mode():
        for slices in batches():
            found, expected = gathering._logits(slices).float(), oracle._logits(slices).float()
            assert float((found - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


@pytest.mark.parametrize("ahead", [0, 1])
def test_without_flashinfer_torch_serves_on_the_device(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    monkeypatch.delitem(sys.modules, "local_worker.engine.flashinfer", raising=False)
    engine = make_engine("llama", BLOCK)
    assert isinstance(engine._attention._backend, Varlen if Varlen.computes(engine._kv) else Sdpa)
    engine.ahead = ahead
    outputs = run(make_batcher(pages=256), engine, make_requests(7))
    assert [len(output) for output in outputs] == [12] * 7

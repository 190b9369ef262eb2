"""LoRA adapters over vLLM's executor compute as a model does whose weights contain the adapter."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from local_worker.core.limits import AdmissionMode
from local_worker.core.request import Request
from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.lora_adapter import LoraAdapter, find_adapter
from local_worker.engine.runner import TransformersEngine
from tests.system.vllm.lora import ALPHA, low_rank, save_adapter
from tests.system.vllm.running import (
    NEW_TOKENS,
    Numbers,
    engine_of,
    make_batcher,
    outputs,
    prompts,
    resized,
    saved,
    vllm,
)
from tests.unit.local_worker.engine import driving
from tests.unit.local_worker.engine.test_exactness import CONFIGS, make_model

if TYPE_CHECKING:
    from local_worker.engine.vllm.executor import VllmEngine

LLAMA = resized(CONFIGS["llama"])
RANKS = {"one": 8, "two": 12}  # vLLM has no buffers for the second, and takes those for 16
MODELS = ("", *RANKS)
numbers = Numbers()


def saved_adapter(name: str, folder: Path, **changes: Any) -> LoraAdapter:
    """The adapter `name` of the model."""
    return find_adapter(name, str(save_adapter(make_model(LLAMA), folder, RANKS[name], **changes)))


def merged(name: str) -> TransformersEngine:
    """Our engine with weights that contain the adapter."""
    model = make_model(LLAMA)
    if name:
        with torch.no_grad():
            for layer, (a, b) in low_rank(model, RANKS[name]).items():
                model.get_parameter(layer).add_(b @ a * (ALPHA / RANKS[name]))
    return engine_of(model)


@pytest.fixture(scope="module", params=[{}, {"tensor_parallel_size": 2}], ids=["process", "tensor"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["VllmEngine"]:
    folder = tmp_path_factory.mktemp("lora")
    adapters = tuple(saved_adapter(name, folder / name) for name in RANKS)
    with vllm(saved(LLAMA, folder / "base"), adapters=adapters, **request.param) as engine:
        yield engine


def requests(count: int, max_tokens: int = NEW_TOKENS) -> list[Request]:
    """Each text for the base and for each adapter, one after the other."""
    made = numbers.requests([text for text in prompts(count) for _ in MODELS], max_tokens=max_tokens)
    return [of_model(request, MODELS[number % len(MODELS)]) for number, request in enumerate(made)]


def of_model(request: Request, model: str) -> Request:
    """The same request for `model`; blocks of different models have no digest in common."""
    shift = 1 + MODELS.index(model)
    digests = [digest ^ shift for digest in request.digests]
    return replace(request, model=model, digests=digests, chain_seed=request.chain_seed ^ shift)


def expected(count: int, max_tokens: int = NEW_TOKENS) -> list[list[int]]:
    """The outputs of `requests`, those of each model from an engine of its own."""
    by_model = [outputs(merged(name), numbers.requests(prompts(count), max_tokens=max_tokens)) for name in MODELS]
    return [output for same_text in zip(*by_model, strict=True) for output in same_text]


def test_a_batch_of_base_and_adapters_is_each_alone(engine: "VllmEngine") -> None:
    """Also in chunks and with prefix hits."""
    wanted = expected(4)
    assert len({tuple(output) for output in wanted[:3]}) == 3, "an adapter changes the output"
    batcher = make_batcher()
    assert driving.run(batcher, engine, requests(4)) == wanted
    again = requests(4)
    assert driving.run(batcher, engine, again) == wanted
    assert all(request.cached for request in again[3:6])


def test_preemption_and_resume_change_nothing(engine: "VllmEngine") -> None:
    tight = requests(4, max_tokens=40)
    found = outputs(engine, tight, pages=12, admission=AdmissionMode.OPTIMISTIC)
    assert found == expected(4, max_tokens=40)
    assert sum(request.preemptions for request in tight) > 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"use_dora": True}, "DoRA"), ({"r": 513}, "lora: one: its rank must be at most 512, got 513")],
)
def test_an_adapter_that_vllm_cannot_use_is_refused_at_the_start(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    adapter = saved_adapter("one", tmp_path / "one", **changes)
    with pytest.raises(UnsupportedModel, match=reason), vllm(saved(LLAMA, tmp_path / "base"), adapters=(adapter,)):
        pass

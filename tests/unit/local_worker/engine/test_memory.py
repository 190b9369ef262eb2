"""Sizes that fit are computed; others are refused with the calculation."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from local_worker.engine import memory
from local_worker.engine.kv import LayerShape, bytes_per_token
from local_worker.engine.memory import OutOfMemory
from local_worker.engine.runner import EngineOptions, TransformersEngine
from tests.unit.local_worker.engine.test_exactness import CONFIGS, make_model


def test_bytes_per_token_sum_over_layers_that_may_differ() -> None:
    shapes = [LayerShape(2, 8, 8, query_heads=4), LayerShape(1, 16, 4, query_heads=4)]
    assert bytes_per_token(shapes, torch.float32) == (2 * 16 + 20) * 4
    assert bytes_per_token(shapes, torch.bfloat16) == (2 * 16 + 20) * 2


def test_the_cache_takes_its_fraction_in_whole_blocks() -> None:
    assert memory.kv_tokens(10_000, 0.5, 30, 16) == 160  # 5,000 bytes hold 166 tokens: ten blocks
    with pytest.raises(OutOfMemory, match=r"at least 16 tokens x 30 bytes; 50% of the 0\.00 GB"):
        memory.kv_tokens(900, 0.5, 30, 16)


def test_the_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    unlimited = memory.available(torch.device("cpu"))
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available(torch.device("cpu")) == pytest.approx(unlimited, rel=0.2)
    (tmp_path / "memory.max").write_text("50000\n")
    (tmp_path / "memory.current").write_text("30000\n")
    (tmp_path / "memory.stat").write_text("anon 20000\ninactive_file 4000\n")
    assert memory.available(torch.device("cpu")) == 24000


def test_the_engine_sizes_its_cache_by_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    token_bytes = 3 * 2 * (8 + 8) * 4  # layers x heads x (key + value) x float32
    monkeypatch.setattr(memory, "available", lambda device: 100_000)
    engine = TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(block_tokens=4, memory_fraction=0.5))
    assert engine.kv_tokens == 50_000 // (token_bytes * 4) * 4


def test_a_cache_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 100_000)
    with pytest.raises(OutOfMemory, match=r"kv_tokens: 4,000 tokens x 384 bytes .* at most 260 tokens fit"):
        TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(block_tokens=4, kv_tokens=4000))


def test_weights_that_do_not_fit_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2).save_pretrained(tmp_path)
    monkeypatch.setattr(memory, "available", lambda device: 1000)
    with pytest.raises(OutOfMemory, match=r"parameters x 4 bytes make .* GB are free"):
        TransformersEngine.load(
            tmp_path, EngineOptions(block_tokens=4), device=torch.device("cpu"), dtype=torch.float32
        )

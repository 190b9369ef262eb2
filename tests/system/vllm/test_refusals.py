"""What vLLM behind our batcher cannot do is refused when the worker starts, by name."""

from pathlib import Path
from typing import Any

import pytest
from transformers import MambaConfig

from local_worker.engine.attention import UnsupportedModel
from tests.engines import VLLM_RUNNER
from tests.system.vllm.running import resized, saved, vllm
from tests.unit.local_worker.engine.test_exactness import CONFIGS, VOCAB


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"block_size": 64}, "block_size: is set by the option block_tokens"),
        ({"max_num_seqs": 4}, "max_num_seqs: is set by the option max_running"),
        ({"enable_lora": True}, "enable_lora: is set by the option lora"),
        ({"speculative_config": {"method": "ngram"}}, "speculative_config: is not supported"),
        ({"tensor_parallel": 2}, "tensor_parallel: vLLM has no such argument"),
        ({"quantization": "nosuch"}, "nosuch"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_are_refused_by_name(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    folder = saved(CONFIGS["llama"], tmp_path)
    with pytest.raises(UnsupportedModel, match=reason), vllm(folder, **arguments):
        pass


@pytest.mark.skipif(VLLM_RUNNER != "v2", reason="make test-vllm runs it with model runner v2")
def test_v2_refuses_a_pipeline(tmp_path: Path) -> None:
    """Its first stage takes a token two steps after it was sampled: the tokens were wrong."""
    folder = saved(resized(CONFIGS["llama"]), tmp_path)
    with (
        pytest.raises(UnsupportedModel, match="pipeline_parallel_size: must be 1"),
        vllm(folder, pipeline_parallel_size=2),
    ):
        pass


def test_a_model_without_pages_of_attention_is_refused(tmp_path: Path) -> None:
    folder = saved(MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB), tmp_path)
    with pytest.raises(UnsupportedModel), vllm(folder):
        pass


def test_a_model_that_vllm_computes_with_the_code_of_transformers_is_refused(tmp_path: Path) -> None:
    folder = saved(resized(CONFIGS["gpt-neox"]), tmp_path)
    with pytest.raises(UnsupportedModel, match="no code of its own for GPTNeoXForCausalLM"), vllm(folder):
        pass


def test_a_shape_that_vllm_cannot_compute_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="head_dim=8"), vllm(saved(CONFIGS["llama"], tmp_path)):
        pass

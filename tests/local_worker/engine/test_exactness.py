"""Greedy output equals `model.generate` token for token, whatever shares the batch or the cache."""

import random
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from fairlead.sampling import Sampling
from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.runner import TransformersEngine
from tests.local_worker.engine.driving import BLOCK, make_batcher, make_request, run, step

VOCAB = 97
NEW_TOKENS = 8
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**{key: value for key, value in SIZES.items() if key != "head_dim"}),
    "qwen3": Qwen3Config(**SIZES),
    "mistral-window": MistralConfig(**SIZES, sliding_window=10),
    "gemma": GemmaConfig(**SIZES),
    "phi3": Phi3Config(**{key: value for key, value in SIZES.items() if key != "head_dim"}),
}


def make_model(config: PreTrainedConfig) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        # Random weights of the usual scale make near-ties; wider ones make decisive logits.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return model


def generate(model: Any, prompt: list[int]) -> list[int]:
    """The oracle: transformers' own loop, one request at a time."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
        )
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens


def prompts(count: int) -> list[list[int]]:
    """Mixed lengths; every second one continues a shared prefix."""
    dice = random.Random(3)
    shared = [dice.randrange(3, VOCAB) for _ in range(4 * BLOCK)]
    own = [[dice.randrange(3, VOCAB) for _ in range(dice.choice((1, 3, 4, 9, 22)))] for _ in range(count)]
    return [shared + tail if number % 2 else tail for number, tail in enumerate(own)]


@pytest.mark.parametrize("name", CONFIGS)
def test_mixed_batches_chunks_and_prefix_hits_change_nothing(name: str) -> None:
    oracle = make_model(CONFIGS[name])
    texts = prompts(8)
    expected = [generate(oracle, prompt) for prompt in texts]
    engine = TransformersEngine(make_model(CONFIGS[name]), kv_tokens=512 * BLOCK, block_tokens=BLOCK)
    batcher = make_batcher(token_budget=11)  # prompts of 38 tokens come in several chunks beside decoding requests
    cold = run(batcher, engine, [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)])
    assert cold == expected
    again = [make_request(prompt, arrival=number + 100) for number, prompt in enumerate(texts)]
    assert run(batcher, engine, again) == expected
    assert all(request.cached >= 4 * BLOCK for request in again[1::2])
    assert run(make_batcher(token_budget=500), engine, [make_request(texts[1])]) == [expected[1]]


def test_requests_that_join_and_leave_at_any_time_change_nothing() -> None:
    texts = prompts(12)
    oracle = make_model(CONFIGS["llama"])
    expected = [generate(oracle, prompt) for prompt in texts]
    engine = TransformersEngine(make_model(CONFIGS["llama"]), kv_tokens=40 * BLOCK, block_tokens=BLOCK)
    batcher = make_batcher(pages=40, token_budget=16, policy="dlpm")
    requests = [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)]
    for number, request in enumerate(requests):
        batcher.submit(request, 0.0)
        step(batcher, engine)
        if number == 5:
            batcher.abort(requests[3])
    while step(batcher, engine):
        pass
    for number, request in enumerate(requests):
        output = request.tokens[request.prompt_tokens :]
        assert output == expected[number][: len(output)]
        assert len(output) == NEW_TOKENS or number == 3


def test_sampled_tokens_depend_on_seed_and_position_alone() -> None:
    engine = TransformersEngine(make_model(CONFIGS["llama"]), kv_tokens=512 * BLOCK, block_tokens=BLOCK)
    sampling = Sampling(max_tokens=8, temperature=1.5, top_k=40, top_p=0.95, seed=11, ignore_eos=True)
    texts = prompts(6)
    solo = run(make_batcher(), engine, [make_request(texts[1], sampling=sampling)])[0]
    crowd = [make_request(text, arrival=number, sampling=sampling) for number, text in enumerate(texts)]
    assert run(make_batcher(token_budget=9), engine, crowd)[1] == solo
    rest = make_request(
        [*texts[1], *solo[:3]],
        seed_position=3,
        sampling=Sampling(max_tokens=5, temperature=1.5, top_k=40, top_p=0.95, seed=11, ignore_eos=True),
    )
    assert run(make_batcher(), engine, [rest])[0] == solo[3:]
    other = Sampling(max_tokens=8, temperature=1.5, seed=12, ignore_eos=True)
    assert run(make_batcher(), engine, [make_request(texts[1], sampling=other)])[0] != solo


def test_a_model_whose_rotary_embedding_depends_on_the_batch_is_refused() -> None:
    config = LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
    with pytest.raises(UnsupportedModel, match="dynamic"):
        TransformersEngine(make_model(config), kv_tokens=64, block_tokens=BLOCK)

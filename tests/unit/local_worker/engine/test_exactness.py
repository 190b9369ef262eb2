"""Greedy output equals `model.generate` token for token, whatever shares the batch or the cache, and whether or not the
next step is launched before the host knows the tokens of the last one."""

import random
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    CohereConfig,
    DeepseekV4Config,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeSWAConfig,
    GraniteSWAConfig,
    HYV4Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    MiMoV2FlashConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    Starcoder2Config,
)

from local_worker.core.batch import Batch, CompletedStep, SampledLogprobs
from local_worker.core.limits import AdmissionMode
from local_worker.engine.attention import Attention, UnsupportedModel
from local_worker.engine.packed_linear import PackedLinear, pack
from local_worker.engine.runner import EngineOptions, TransformersEngine
from local_worker.engine.sdpa import Sdpa
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, Driver, make_batcher, make_request, run

pytestmark = pytest.mark.slow

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
PLAIN = {key: value for key, value in SIZES.items() if key != "head_dim"}
# Its chunks are longer than the text that is computed when a model is loaded.
LLAMA4 = SIZES | {"num_hidden_layers": 4, "num_local_experts": 2, "attention_chunk_size": 32, "moe_layers": []}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "sliding_window": 10}
PLAIN_ROPE: Any = {"rope_type": "default", "rope_theta": 10000.0}
# Their attention has sinks.
SINKS: dict[str, PreTrainedConfig] = {
    "gpt-oss": GptOssConfig(**SIZES, **EXPERTS, num_local_experts=4, rope_parameters=PLAIN_ROPE),
    "granite-swa": GraniteSWAConfig(**SIZES, sliding_window=10),
    "granite-moe-swa": GraniteMoeSWAConfig(**SIZES, **EXPERTS, num_local_experts=4),
    "mimo-v2-flash": MiMoV2FlashConfig(**SIZES, **EXPERTS, moe_intermediate_size=16, n_routed_experts=4),
}
if hasattr(transformers, "FlintConfig"):  # not in the version that vLLM requires
    SINKS["flint"] = transformers.FlintConfig(**SIZES)
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-mha": LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama-mqa": LlamaConfig(**SIZES | {"num_key_value_heads": 1}),
    "qwen2": Qwen2Config(**PLAIN),
    "qwen3": Qwen3Config(**SIZES),
    "mistral-window": MistralConfig(**SIZES, sliding_window=10),
    "gemma": GemmaConfig(**SIZES),
    "gemma3": Gemma3TextConfig(**SIZES, sliding_window=10),
    "phi": PhiConfig(**PLAIN),
    "phi3": Phi3Config(**PLAIN),
    "olmo2": Olmo2Config(**PLAIN),
    "starcoder2": Starcoder2Config(**PLAIN),
    "granite": GraniteConfig(**PLAIN),
    "cohere": CohereConfig(**PLAIN),
    "smollm3": SmolLM3Config(**PLAIN),
    "glm4": Glm4Config(**SIZES),
    "gpt2": GPT2Config(**PLAIN),
    "gpt-neox": GPTNeoXConfig(**PLAIN),
    "opt": OPTConfig(**PLAIN),
    "mixtral": MixtralConfig(**SIZES),
    "qwen3-moe": Qwen3MoeConfig(**SIZES, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2),
    **SINKS,
}
BFLOAT16 = ("llama", "qwen2", "qwen3", "mistral-window", "gemma")
BFLOAT16_SLACK = 2.0  # seen: at most 1.3; sums in another order round differently
REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "gemma2": (Gemma2Config(**SIZES), "softcap"),
    "hunyuan v4": (HYV4Config(**SIZES), "indexed_attention"),
    "deepseek v4": (DeepseekV4Config(**SIZES), "heavily_compressed_attention"),
    "llama4": (Llama4TextConfig(**LLAMA4), "chunked_attention"),
    "llama4 without chunks": (
        Llama4TextConfig(**LLAMA4 | {"layer_types": ["full_attention"] * 4}),
        "attn_temperature_tuning",
    ),
    "no limit": (MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB), "max_position_embeddings"),
    "bidirectional": (Gemma3TextConfig(**SIZES, use_bidirectional_attention=True), "causal"),
    "bloom": (BloomConfig(**PLAIN), "custom attention"),
    "falcon": (FalconConfig(**PLAIN), "custom attention"),
    "dynamic rope": (
        LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}),
        "dynamic",
    ),
}
AHEAD = pytest.mark.parametrize("ahead", [0, 1])
OPTIONS = EngineOptions(kv_tokens=512 * BLOCK, block_tokens=BLOCK)


def make_model(config: PreTrainedConfig) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_config(deepcopy(config), dtype=torch.float32).eval()
    with torch.no_grad():
        # Random weights of the usual scale make near-ties; wider ones make decisive logits.
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
            elif name.endswith("sinks"):
                parameter.normal_(std=2.0)
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


@cache
def oracle(name: str) -> Any:
    return make_model(CONFIGS[name])


@cache
def generated(name: str, prompt: tuple[int, ...]) -> list[int]:
    return generate(oracle(name), [*prompt])


def expected_of(name: str, texts: list[list[int]]) -> list[list[int]]:
    """Return what the oracle generates for each text, which it computes once for all tests of this process."""
    return [generated(name, tuple(text)) for text in texts]


def prompts(count: int) -> list[list[int]]:
    """Mixed lengths; every second one continues a shared prefix."""
    dice = random.Random(3)
    shared = [dice.randrange(3, VOCAB) for _ in range(4 * BLOCK)]
    own = [[dice.randrange(3, VOCAB) for _ in range(dice.choice((1, 3, 4, 9, 22)))] for _ in range(count)]
    return [shared + tail if number % 2 else tail for number, tail in enumerate(own)]


@pytest.mark.parametrize("name", CONFIGS)
def test_mixed_batches_chunks_and_prefix_hits_change_nothing(name: str) -> None:
    texts = prompts(8)
    expected = expected_of(name, texts)
    engine = TransformersEngine(make_model(CONFIGS[name]), OPTIONS)
    batcher = make_batcher(token_budget=11)  # prompts of 38 tokens come in several chunks beside decoding requests
    cold = run(batcher, engine, [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)])
    assert cold == expected
    again = [make_request(prompt, arrival=number + 100) for number, prompt in enumerate(texts)]
    assert run(batcher, engine, again) == expected
    assert all(request.cached >= 4 * BLOCK for request in again[1::2])
    assert run(make_batcher(token_budget=500), engine, [make_request(texts[1])]) == [expected[1]]
    engine.ahead = 1
    batcher = make_batcher(token_budget=11)
    for round_ in range(2):  # cold, then with prefix hits
        requests = [make_request(prompt, arrival=100 * round_ + n) for n, prompt in enumerate(texts)]
        assert run(batcher, engine, requests) == expected


@AHEAD
def test_requests_that_join_and_leave_at_any_time_change_nothing(ahead: int) -> None:
    texts = prompts(12)
    expected = expected_of("llama", texts)
    engine = TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(kv_tokens=40 * BLOCK, block_tokens=BLOCK))
    engine.ahead = ahead
    batcher = make_batcher(pages=40, token_budget=16, policy="dlpm")
    driver = Driver(batcher, engine)
    requests = [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)]
    for number, request in enumerate(requests):
        batcher.queue.submit(request, 0.0)
        driver.turn()
        if number == 5:
            batcher.queue.abort(requests[3])
    while driver.turn():
        pass
    for number, request in enumerate(requests):
        output = request.tokens[request.prompt_tokens :]
        assert output == expected[number][: len(output)]
        assert len(output) == NEW_TOKENS or number == 3


@AHEAD
@pytest.mark.parametrize("policy", ["dlpm", "fcfs"])
def test_preemption_and_resume_change_nothing(policy: str, ahead: int) -> None:
    texts = prompts(10)
    expected = expected_of("llama", texts)
    engine = TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(kv_tokens=16 * BLOCK, block_tokens=BLOCK))
    engine.ahead = ahead
    batcher = make_batcher(pages=16, token_budget=24, policy=policy, admission=AdmissionMode.OPTIMISTIC)
    requests = [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)]
    assert run(batcher, engine, requests) == expected
    assert sum(request.preemptions for request in requests) > 0


@AHEAD
@pytest.mark.parametrize("pages", [16, 64], ids=["few pages", "few places"])
def test_requests_that_give_way_go_on_as_if_nothing_had_happened(pages: int, ahead: int) -> None:
    """Seeds, penalties and tokens: clients far in debt leave for those with credit, with their pages or without."""
    texts = prompts(10)
    sampling = SamplingParams(
        max_tokens=12, temperature=1.2, seed=5, repetition_penalty=1.3, presence_penalty=0.5, ignore_eos=True
    )
    engine = TransformersEngine(
        make_model(CONFIGS["llama"]), EngineOptions(kv_tokens=pages * BLOCK, block_tokens=BLOCK)
    )
    engine.ahead = ahead
    alone = [run(make_batcher(pages=pages), engine, [make_request(text, sampling=sampling)])[0] for text in texts]
    batcher = make_batcher(
        pages=pages, max_running=2, token_budget=16, policy="dlpm", quantum_tokens=4, most_debt_tokens=6
    )
    requests = [make_request(text, arrival=number, sampling=sampling) for number, text in enumerate(texts)]
    assert run(batcher, engine, requests) == alone
    assert sum(request.preemptions for request in requests) > 0


@AHEAD
def test_sampled_tokens_depend_on_seed_and_position_alone(ahead: int) -> None:
    engine = TransformersEngine(make_model(CONFIGS["llama"]), OPTIONS)
    engine.ahead = ahead
    sampling = SamplingParams(max_tokens=8, temperature=1.5, top_k=40, top_p=0.95, seed=11, ignore_eos=True)
    texts = prompts(6)
    solo = run(make_batcher(), engine, [make_request(texts[1], sampling=sampling)])[0]
    crowd = [make_request(text, arrival=number, sampling=sampling) for number, text in enumerate(texts)]
    assert run(make_batcher(token_budget=9), engine, crowd)[1] == solo
    rest = make_request(
        [*texts[1], *solo[:3]],
        seed_position=3,
        sampling=SamplingParams(max_tokens=5, temperature=1.5, top_k=40, top_p=0.95, seed=11, ignore_eos=True),
    )
    assert run(make_batcher(), engine, [rest])[0] == solo[3:]
    other = SamplingParams(max_tokens=8, temperature=1.5, seed=12, ignore_eos=True)
    assert run(make_batcher(), engine, [make_request(texts[1], sampling=other)])[0] != solo


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 33, 64])
def test_the_size_of_the_batch_changes_no_greedy_token(size: int) -> None:
    texts = prompts(size)
    expected = expected_of("llama", texts)
    engine = TransformersEngine(make_model(CONFIGS["llama"]), EngineOptions(kv_tokens=2048, block_tokens=BLOCK))
    for engine.ahead in (0, 1):
        requests = [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)]
        assert run(make_batcher(token_budget=512), engine, requests) == expected


def test_every_way_of_sampling_gives_the_same_when_the_engine_runs_ahead() -> None:
    """Penalties and `min_tokens` look at tokens that the host does not know yet; so do the seeded draws' positions."""
    engine = TransformersEngine(make_model(CONFIGS["llama"]), replace(OPTIONS, eos_token_ids=tuple(range(3, 40))))
    ways: list[dict[str, Any]] = [
        {"ignore_eos": True, "frequency_penalty": 2.0, "presence_penalty": 1.0},
        {"ignore_eos": True, "repetition_penalty": 5.0, "temperature": 1.0, "seed": 4},
        {"ignore_eos": True, "temperature": 3.0, "seed": 5, "logprobs": 3},
        {"min_tokens": 5},
        {"temperature": 2.0, "top_p": 0.8, "min_p": 0.01, "seed": 6, "min_tokens": 3},
        {"ignore_eos": True, "logprobs": 0},
        {"ignore_eos": True, "logit_bias": ((7, 100.0), (9, 99.0)), "frequency_penalty": 2.0},
        {},
    ]
    texts = prompts(len(ways))

    def outputs(ahead: int) -> tuple[list[list[int]], list[Any]]:
        engine.ahead = ahead
        recorder = LogprobRecorder(engine)
        batcher = make_batcher(token_budget=24, eos=tuple(range(3, 40)))
        requests = [
            make_request(text, arrival=number, sampling=SamplingParams(max_tokens=12, **ways[number]))
            for number, text in enumerate(texts)
        ]
        return run(batcher, recorder, requests), [recorder.found[request.arrival] for request in requests]

    plain, plain_logprobs = outputs(0)
    ahead, ahead_logprobs = outputs(1)
    assert ahead == plain
    assert len({len(output) for output in plain}) > 1, "some end before max_tokens: a token is wasted"
    for here, there, output in zip(ahead_logprobs, plain_logprobs, plain, strict=True):
        assert len(here) >= len(there) == len(output)
        for one, other in zip(here, there, strict=False):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert [token for token, _ in one.top] == [token for token, _ in other.top]
                assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


class LogprobRecorder:
    """Keeps the log-probabilities of each request's tokens."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.ahead = engine.ahead
        self.found: dict[int, list[SampledLogprobs | None]] = defaultdict(list)
        self._engine = engine

    def launch(self, batch: Batch) -> CompletedStep:
        result = self._engine.launch(batch).wait()
        requests = [piece.request for piece in batch.slices if piece.samples]
        for request, entry in zip(requests, result.logprobs or [None] * len(requests), strict=True):
            self.found[request].append(entry)
        return CompletedStep(result)

    def check(self) -> None:
        self._engine.check()

    def close(self) -> None:
        self._engine.close()


@pytest.mark.parametrize("group_tokens", [1, 64, 100_000])
def test_how_decoding_requests_are_grouped_changes_no_greedy_token(group_tokens: int) -> None:
    class Grouping(TransformersEngine):
        def _backend(self) -> Attention:
            return Sdpa(self._kv, group_tokens)

    texts = prompts(9)
    expected = expected_of("mistral-window", texts)
    engine = Grouping(make_model(CONFIGS["mistral-window"]), OPTIONS)
    requests = [make_request(prompt, arrival=number) for number, prompt in enumerate(texts)]
    assert run(make_batcher(), engine, requests) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_be_computed_wrongly_is_refused_with_the_reason(name: str) -> None:
    config, reason = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=reason):
        TransformersEngine(make_model(config), OPTIONS)


class Keen(torch.nn.Linear):
    """A linear layer with a way of its own, that must survive."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows) + 1.0


def test_only_plain_linear_layers_are_packed() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), Keen(24, 8), torch.nn.Linear(8, 5, bias=False))
    rows = torch.randn(7, 16)
    with torch.inference_mode():
        expected = model(rows)
        pack(model)
        assert [type(layer) for layer in model] == [PackedLinear, Keen, PackedLinear]
        torch.testing.assert_close(model(rows), expected)


class Recorder(TransformersEngine):
    """Keeps the logits that sampled each request's tokens."""

    def record(self, batch: Batch) -> dict[int, torch.Tensor]:
        with torch.inference_mode():
            logits = self._logits(batch.slices)
        rows = [piece.request for piece in batch.slices if piece.samples]
        return dict(zip(rows, logits, strict=True))


def exact_logits(model: Any, text: list[int], prompt_tokens: int) -> torch.Tensor:
    """[output tokens, vocabulary]: what sampled each token after the prompt, by the model's own attention."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([text])).logits
    return logits[0, prompt_tokens - 1 : -1].float()


@pytest.mark.parametrize("name", BFLOAT16)
def test_bfloat16_rounds_no_worse_than_the_models_own_attention(name: str) -> None:
    """Mixed batches, chunks and contexts beyond the window, against the same weights in float32."""
    engine = Recorder(make_model(CONFIGS[name]).to(torch.bfloat16), OPTIONS)
    batcher = make_batcher(token_budget=11)
    requests = [make_request(text, arrival=number) for number, text in enumerate(prompts(8))]
    for request in requests:
        batcher.queue.submit(request, 0.0)
    found: dict[int, list[torch.Tensor]] = defaultdict(list)
    while (plan := batcher.plan(0.0)) is not None:
        for number, row in engine.record(plan.batch).items():
            found[number].append(row.float())
        batcher.commit(plan, engine.launch(plan.batch).wait())
    own = make_model(CONFIGS[name]).to(torch.bfloat16)
    exact = make_model(CONFIGS[name]).to(torch.bfloat16).float()
    ours = theirs = 0.0
    for request in requests:
        truth = exact_logits(exact, request.tokens, request.prompt_tokens)
        scale = float(truth.abs().max())
        paged, eager = torch.stack(found[request.arrival]), exact_logits(own, request.tokens, request.prompt_tokens)
        assert paged.shape == truth.shape == (NEW_TOKENS, VOCAB)
        ours = max(ours, float((paged - truth).abs().max()) / scale)
        theirs = max(theirs, float((eager - truth).abs().max()) / scale)
    assert ours <= BFLOAT16_SLACK * theirs, (
        f"off by {ours:.4f} of the largest logit, where eager attention is {theirs:.4f} off"
    )


def test_batch_invariant_logits_are_bitwise_those_of_a_lone_request() -> None:
    config = LlamaConfig(**SIZES | {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64})
    engine = Recorder(make_model(config), replace(OPTIONS, batch_invariant=True))
    texts = prompts(9)

    def decode_logits(numbers: list[int]) -> list[dict[int, torch.Tensor]]:
        batcher = make_batcher(token_budget=512)
        for number in numbers:
            batcher.queue.submit(make_request(texts[number], arrival=number), 0.0)
        found = []
        while (plan := batcher.plan(0.0)) is not None:
            found.append(engine.record(plan.batch))
            batcher.commit(plan, engine.launch(plan.batch).wait())
        return found

    together = decode_logits(list(range(9)))
    for number in range(9):
        alone = decode_logits([number])
        assert len(alone) == len(together)
        for step_alone, step_together in zip(alone, together, strict=True):
            assert torch.equal(step_alone[number], step_together[number])

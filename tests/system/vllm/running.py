"""Both engines on the same small models, with pages of vLLM's size on a CPU."""

import copy
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import GptOssConfig, PreTrainedConfig

from local_worker.core.batch import Engine
from local_worker.core.batcher import Batcher
from local_worker.core.request import Request
from local_worker.engine.lora_adapter import LoraAdapter
from local_worker.engine.runner import EngineOptions, TransformersEngine
from local_worker.sandbox import Sandbox
from local_worker.vocabulary import Vocabulary
from serving.sampling_params import SamplingParams
from tests.engines import VLLM_BLOCK as BLOCK
from tests.engines import VLLM_RUNNER
from tests.system.vllm.ranks import Method, start_ranks_by
from tests.unit.local_worker.engine import driving
from tests.unit.local_worker.engine.test_constraints import CHARACTERS
from tests.unit.local_worker.engine.test_exactness import VOCAB, make_model

if TYPE_CHECKING:
    from local_worker.engine.vllm.executor import VllmEngine

PAGES = 64
NEW_TOKENS = 8
EOS = (2,)
SANDBOX = Sandbox(lambda: Vocabulary(EOS, CHARACTERS))


def resized(config: PreTrainedConfig) -> PreTrainedConfig:
    """The same architecture with heads of 32, the smallest that vLLM's attention on a CPU can compute."""
    config = copy.deepcopy(config)
    if isinstance(config, GptOssConfig):
        config.rope_parameters = GptOssConfig().rope_parameters  # vLLM computes no other kind
    config.hidden_size = 128
    for name, size in (("head_dim", 32), ("word_embed_proj_dim", 128), ("ffn_dim", 128), ("intermediate_size", 128)):
        if getattr(config, name, None) is not None:
            setattr(config, name, size)
    return config


def saved(config: PreTrainedConfig, folder: Path) -> Path:
    """A folder with random weights of `config`."""
    make_model(config).save_pretrained(folder)
    return folder


def ours(config: PreTrainedConfig, eos: tuple[int, ...] = EOS) -> TransformersEngine:
    """Our engine, with the weights that `saved` writes."""
    return engine_of(make_model(config), eos)


def engine_of(model: Any, eos: tuple[int, ...] = EOS) -> TransformersEngine:
    """Our engine, with the weights of `model`."""
    options = EngineOptions(kv_tokens=PAGES * BLOCK, block_tokens=BLOCK, eos_token_ids=eos, sandbox=SANDBOX)
    return TransformersEngine(model, options)


@contextmanager
def vllm(
    folder: Path,
    *,
    pages: int = PAGES,
    adapters: tuple[LoraAdapter, ...] = (),
    start_ranks: Method = "forkserver",
    **arguments: Any,
) -> Iterator["VllmEngine"]:
    """vLLM's executor behind our batcher; closed in the end."""
    from local_worker.engine.vllm.arguments import VllmOptions
    from local_worker.engine.vllm.executor import VllmEngine

    start_ranks_by(start_ranks)
    options = VllmOptions(
        max_running=64,
        token_budget=512,
        block_tokens=BLOCK,
        kv_tokens=pages * BLOCK,
        memory_fraction=0.2,
        dtype="float32",
        eos_token_ids=EOS,
        adapters=adapters,
        runner=VLLM_RUNNER,
    )
    engine = VllmEngine(str(folder), options, {"enforce_eager": True, **arguments}, SANDBOX)
    try:
        yield engine
    finally:
        engine.close()


def make_batcher(**options: Any) -> Batcher:
    """A batcher with pages of vLLM's size."""
    return driving.make_batcher(block_tokens=BLOCK, **{"pages": PAGES, "token_budget": 50, **options})


def make_request(prompt: Sequence[int], arrival: int = 0, seed_position: int = 0, **sampling: Any) -> Request:
    """A request that samples `NEW_TOKENS` greedily, unless `sampling` says otherwise."""
    params = SamplingParams(**{"max_tokens": NEW_TOKENS, "ignore_eos": True, **sampling})
    return driving.make_request(
        prompt, arrival=arrival, seed_position=seed_position, sampling=params, block_tokens=BLOCK
    )


class Numbers:
    """Arrivals never repeat in the life of an engine."""

    def __init__(self) -> None:
        self._next = 0

    def requests(self, texts: Sequence[Sequence[int]], **sampling: Any) -> list[Request]:
        """One request for each text."""
        made = [make_request(text, self._next + number, **sampling) for number, text in enumerate(texts)]
        self._next += len(made)
        return made


def prompts(count: int, seed: int = 3) -> list[list[int]]:
    """Mixed lengths; every second one continues a shared prefix of two blocks."""
    dice = random.Random(seed)
    shared = [dice.randrange(3, VOCAB) for _ in range(2 * BLOCK)]
    own = [[dice.randrange(3, VOCAB) for _ in range(dice.choice((1, 3, 31, 32, 33, 70)))] for _ in range(count)]
    return [shared + tail if number % 2 else tail for number, tail in enumerate(own)]


def outputs(engine: Engine, requests: Sequence[Request], **options: Any) -> list[list[int]]:
    """The output of each request, all submitted at once."""
    return driving.run(make_batcher(**options), engine, requests)

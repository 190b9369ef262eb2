"""Loading of the engine, the tokenizer and the properties of the models that a worker serves."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from local_worker.config import WorkerConfig
from local_worker.core.batch import Engine
from local_worker.core.device_sizes import SIZES
from local_worker.engine.model_files import folder_of, log_once, resolve, revision
from local_worker.sizes import max_running
from local_worker.tokenizer import ByteTokenizer, HuggingFaceTokenizer, Tokenizer
from serving.config import ConfigError, require
from serving.process import log_step

FAKE_KV_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An engine, and the common properties of its models.

    The models share one tokenizer and one context length, as a base model and its adapters do.
    """

    engine: Engine
    tokenizer: Tokenizer
    vocab_size: int
    max_model_tokens: int
    kv_tokens: int
    revisions: Mapping[str, str]  # model name in requests -> revision of its weights
    device: str  # "cpu" or "cuda"

    @property
    def longest(self) -> int:
        """The largest number of tokens of a prompt with its output."""
        return min(self.max_model_tokens, self.kv_tokens)


def load_model(config: WorkerConfig) -> ServedModel:
    """Load the engine that `config.engine` names; raise ConfigError if it cannot serve the model or memory is short."""
    model = _fake(config) if config.engine == "fake" else _transformers(config)
    require(
        model.kv_tokens >= config.block_tokens,
        f"kv_tokens: must be at least one block (block_tokens, {config.block_tokens}), got {model.kv_tokens}",
    )
    return model


def _fake(config: WorkerConfig) -> ServedModel:
    from local_worker.engine.fake import FakeEngine

    tokenizer = ByteTokenizer()
    engine = FakeEngine(tokenizer.vocab_size, config.fake_step_seconds, config.block_tokens)
    kv_tokens = config.kv_tokens or FAKE_KV_TOKENS
    revisions = dict.fromkeys(config.model_names, "fake")
    return ServedModel(engine, tokenizer, tokenizer.vocab_size, kv_tokens, kv_tokens, revisions, device="cpu")


def _transformers(config: WorkerConfig) -> ServedModel:
    # A wrong name is reported before the slow imports. The imports are local, so that the fake engine needs none.
    try:
        path = resolve(config.model)
    except OSError as error:
        raise ConfigError(f"model: {config.model}: {error}") from error
    log_step("importing the engine")
    import torch

    from local_worker.engine.attention import UnsupportedModel
    from local_worker.engine.load_errors import reading
    from local_worker.engine.memory import OutOfMemory
    from local_worker.engine.runner import EngineOptions, TransformersEngine

    log_once()
    torch.set_num_threads(config.threads or os.cpu_count() or 1)
    device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    dtype = config.dtype if config.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
    try:
        log_step("reading the tokenizer")
        with reading():
            tokenizer = HuggingFaceTokenizer.load(path)
        options = EngineOptions(
            block_tokens=config.block_tokens,
            kv_tokens=config.kv_tokens,
            memory_fraction=config.memory_fraction,
            batch_invariant=config.batch_invariant,
            most_kv_tokens=SIZES[device].most_kv_tokens,
            max_running=max_running(config, device),
            eos_token_ids=tokenizer.eos_token_ids,
        )
        engine = TransformersEngine.load(path, options, device=torch.device(device), dtype=getattr(torch, dtype))
        revisions = {name: revision(folder_of(path)) for name in config.model_names}
    except (UnsupportedModel, OutOfMemory, OSError) as error:
        raise ConfigError(f"model: {config.model}: {error}") from error
    return ServedModel(
        engine, tokenizer, engine.vocab_size, engine.max_model_tokens, engine.kv_tokens, revisions, device
    )

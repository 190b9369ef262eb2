"""Loading of the engine, the tokenizer and the properties of the models that a worker serves."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from local_worker.config import WorkerConfig
from local_worker.core.batch import Engine
from local_worker.core.limits import BLOCK_TOKENS, SIZES
from local_worker.engine.lora_adapter import find_adapter
from local_worker.engine.model_files import folder_of, log_once, resolve, revision
from local_worker.engine.vllm.environment import prepare, read_arguments
from local_worker.sandbox import Sandbox
from local_worker.sizes import max_running, token_budget
from local_worker.tokenizer import ByteTokenizer, DecodingTokenizer, HuggingFaceTokenizer
from serving.config import ConfigError, require
from serving.process import log_step

FAKE_KV_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An engine, and the common properties of its models.

    The models share one tokenizer and one context length, as a base model and its adapters do.
    """

    engine: Engine
    engine_name: str  # with its version, for people
    tokenizer: DecodingTokenizer
    vocab_size: int
    max_model_tokens: int
    kv_tokens: int
    block_tokens: int
    revisions: Mapping[str, str]  # model name in requests -> revision of its weights and engine
    device: str  # "cpu" or "cuda"
    sandbox: Sandbox | None = None  # for constraints of outputs; None: the engine does not obey any

    @property
    def longest(self) -> int:
        """The largest number of tokens of a prompt with its output."""
        return min(self.max_model_tokens, self.kv_tokens)


def load_model(config: WorkerConfig) -> ServedModel:
    """Load the engine that `config.engine` names; raise ConfigError if it cannot serve the model or memory is short."""
    model = {"fake": _fake, "transformers": _transformers, "vllm": _vllm}[config.choice.name](config)
    require(
        model.kv_tokens >= model.block_tokens,
        f"kv_tokens: must be at least one block (block_tokens, {model.block_tokens}), got {model.kv_tokens}",
    )
    return model


def _fake(config: WorkerConfig) -> ServedModel:
    from local_worker.engine.fake import FakeEngine

    tokenizer, block_tokens = ByteTokenizer(config.choice.token_bytes), config.block_tokens or BLOCK_TOKENS
    sandbox = Sandbox(tokenizer.vocabulary)
    engine = FakeEngine(tokenizer.vocab_size, config.choice.step_seconds, block_tokens, sandbox=sandbox)
    kv_tokens = config.cache.tokens or FAKE_KV_TOKENS
    return ServedModel(
        engine,
        "fake",
        tokenizer,
        tokenizer.vocab_size,
        kv_tokens,
        kv_tokens,
        block_tokens,
        dict.fromkeys(config.model_names, "fake"),
        device="cpu",
        sandbox=sandbox,
    )


def _path(config: WorkerConfig) -> Path | str:
    # A wrong name is reported before the slow imports. These are local, so that the fake engine needs none.
    try:
        return resolve(config.model_place)
    except OSError as error:
        raise ConfigError(f"model: {config.model}: {error}") from error


def _own_threads() -> int | None:
    """Return one thread for each core, unless OMP_NUM_THREADS says how many torch takes."""
    return None if "OMP_NUM_THREADS" in os.environ else os.cpu_count()


def _transformers(config: WorkerConfig) -> ServedModel:
    missing = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
    needs = f"engine: transformers needs {', '.join(missing)}, which the extra `worker` of fairlead-serving installs"
    require(not missing, needs)
    path = _path(config)
    log_step("importing the engine")
    import torch

    from local_worker.engine.attention import UnsupportedModel
    from local_worker.engine.load_errors import reading
    from local_worker.engine.memory import OutOfMemory
    from local_worker.engine.runner import EngineOptions, TransformersEngine

    log_once()
    if threads := _own_threads():
        torch.set_num_threads(threads)
    device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    dtype = config.dtype if config.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
    try:
        log_step("reading the tokenizer")
        with reading():
            tokenizer = HuggingFaceTokenizer.load(path)
        options = EngineOptions(
            block_tokens=config.block_tokens or BLOCK_TOKENS,
            kv_tokens=config.cache.tokens,
            memory_fraction=config.cache.memory_fraction,
            batch_invariant=config.choice.batch_invariant,
            most_kv_tokens=SIZES[device].most_kv_tokens,
            max_running=max_running(config, device),
            eos_token_ids=tokenizer.eos_token_ids,
            sandbox=Sandbox(tokenizer.vocabulary),
        )
        engine = TransformersEngine.load(path, options, device=torch.device(device), dtype=getattr(torch, dtype))
        revisions = {name: revision(folder_of(path)) for name in config.model_names}
    except (UnsupportedModel, OutOfMemory, OSError) as error:
        raise ConfigError(f"model: {config.model}: {error}") from error
    return ServedModel(
        engine,
        f"transformers {version('transformers')}",
        tokenizer,
        engine.vocab_size,
        engine.max_model_tokens,
        engine.kv_tokens,
        options.block_tokens,
        revisions,
        device,
        options.sandbox,
    )


def _vllm(config: WorkerConfig) -> ServedModel:
    path, arguments = _path(config), read_arguments(config.vllm_args)
    require(find_spec("vllm") is not None, "engine: vllm is not installed; docs/operations.md says how to install it")
    adapters = tuple(find_adapter(name, place) for name, place in config.lora_adapters.items())
    log_step("importing the engine")
    prepare(config.choice.runner)
    from local_worker.engine.attention import UnsupportedModel
    from local_worker.engine.load_errors import reading
    from local_worker.engine.vllm.arguments import VllmOptions
    from local_worker.engine.vllm.executor import VllmEngine, device_of_vllm
    from local_worker.engine.vllm.further_node import compute_for_first_node

    log_once()
    device = device_of_vllm()
    require(config.device in ("auto", device), f"device: the installed vLLM computes on {device}, not {config.device}")
    require(device in SIZES, f"engine: vllm: must compute on one of {', '.join(SIZES)}, not on {device}")
    try:
        log_step("reading the tokenizer")
        with reading():
            tokenizer = HuggingFaceTokenizer.load(path)
        options = VllmOptions(
            max_running=max_running(config, device),
            token_budget=token_budget(config, device),
            block_tokens=config.block_tokens,
            kv_tokens=config.cache.tokens or SIZES[device].most_kv_tokens,
            memory_fraction=config.cache.memory_fraction,
            dtype=config.dtype,
            eos_token_ids=tokenizer.eos_token_ids,
            adapters=adapters,
            runner=config.choice.runner,
        )
        log_step("starting vLLM's executor")
        if arguments.get("node_rank"):
            compute_for_first_node(str(path), options, arguments)
            raise SystemExit("the ranks of this node have ended")
        sandbox = Sandbox(tokenizer.vocabulary)
        engine = VllmEngine(str(path), options, arguments, sandbox)
        base = revision(folder_of(path))
        revisions = dict.fromkeys(config.model_names, f"{base}.vllm")
        revisions |= {adapter.name: f"{base}.{adapter.revision}.vllm" for adapter in options.adapters}
    except (UnsupportedModel, OSError) as error:
        raise ConfigError(f"model: {config.model}: {error}") from error
    return ServedModel(
        engine,
        f"vllm {engine.version}",
        tokenizer,
        engine.vocab_size,
        engine.max_model_tokens,
        engine.kv_tokens,
        engine.block_tokens,
        revisions,
        device,
        sandbox,
    )

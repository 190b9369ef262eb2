"""The worker's configuration."""

from dataclasses import dataclass

from local_worker.core.limits import BLOCK_TOKENS, AdmissionMode, check_sizes
from local_worker.engine_choice import CacheSize, EngineChoice
from local_worker.worker_options import WorkerOptions
from serving.config import ConfigError, check_positive, option, require
from serving.model_name import BUILT_IN

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(WorkerOptions):
    """The options of a worker; serving.config says where values come from."""

    engine: str = option(
        "transformers",
        "`transformers` and `vllm` compute tokens with a model, `vllm` with the executor of an installed vLLM; `fake` "
        "makes them up, without a model: with `fake:0.02,4` in steps of 0.02 s from prompts of 4 bytes a token. "
        "`vllm:v2` is the second of vLLM's two model runners. With `transformers:batch-invariant` a request's logits "
        "do not depend on the others in its batch, and steps take longer.",
        unit="name[:variant]",
        change_when="A model needs several GPUs or a quantization (`vllm`), outputs have to be reproducible to the bit "
        "(`transformers:batch-invariant`), or you rehearse a deployment without a model (`fake`).",
    )
    step_seconds: float | None = option(
        None,
        "Under `dlpm` and `vtc` a step lasts about this long, once the times of steps are known. Without it a step "
        "lasts at most twice as long as one of `token_budget` tokens without context.",
        unit="seconds",
        change_when="Tokens of running calls come too unevenly beside prompts (less).",
    )
    preemption_quanta: int = option(
        16,
        "Under `dlpm` and `vtc` a client that owes this many quanta gives its places to others, without loss. The "
        "bound of fairness grows by twice as much. With 0 no request gives way.",
        unit="quanta",
        change_when="Requests are preempted too often (more), or the bound is too wide (less).",
    )
    vllm_args: str = option(
        "",
        "These are more arguments of vLLM's engine: a YAML file, or a mapping such as `{tensor_parallel_size: 2}`.",
        unit="path or YAML",
        change_when="The engine is `vllm`, and a model needs several GPUs, a quantization or another of its options.",
    )
    model: str = option(
        BUILT_IN,
        "The worker serves the built-in model of this name, the model in this folder, or the one with this id at the "
        "hub. Requests name it by the last part of that, or by the name before it in `my-name=organisation/model`. The "
        "engine `fake` takes several names, separated by commas.",
        unit="[name=]name, path or id",
        change_when="You serve a model of your choice; the built-in one is for trying.",
    )
    lora: str = option(
        "",
        "Requests may also name these LoRA adapters of the model: each is NAME=FOLDER or NAME=HUB_ID, separated by "
        "commas. Only the engine `vllm` computes with adapters.",
        unit="name=path or name=id",
        change_when="Callers need variants of the model, which were trained as adapters of it.",
    )
    device: str = option(
        "auto",
        "The model runs on this device; `auto` takes a GPU if there is one, else the CPU.",
        choices=("auto", "cpu", "cuda"),
        change_when="The GPU is for others (`cpu`), or the worker must not start without one (`cuda`).",
    )
    dtype: str = option(
        "auto",
        "Weights and KV cache have this number format; `auto` is float32 on a CPU and bfloat16 on a GPU, and that of "
        "the model's files with the engine `vllm`.",
        choices=("auto", *DTYPES),
        change_when="Memory is short on a CPU (`bfloat16`), or the GPU has no bfloat16 (`float16`).",
    )
    kv_tokens: str = option(
        "30%",
        "The KV cache holds this many tokens, or takes this part of the memory that the weights leave free, on a CPU "
        "at most 4,096 tokens; the bound of fairness grows with it. With the engine `vllm` weights and cache take the "
        "part of all memory; `4096,90%` gives it both.",
        unit="tokens, or percent of memory",
        change_when="The worker has a GPU to itself, where 90 % is usual, prompts are too long for the cache, or the "
        "bound is too wide.",
    )
    block_tokens: int | None = option(
        None,
        "A page of the KV cache has this many tokens. Prefixes are cached and found in whole blocks of that size. "
        "Without it a page has 16 tokens, or as many as vLLM chooses for the device.",
        unit="tokens",
        change_when="Prefixes are hardly longer than a block (less). All workers of a model need the same.",
    )
    max_running: int | None = option(
        None,
        "A batch has at most this many requests. Without it these are 32 on a CPU and 128 on a GPU.",
        unit="requests",
        change_when="Running calls get tokens too slowly (less), or requests wait while the KV cache has room (more).",
    )
    token_budget: int | None = option(
        None,
        "A step computes at most this many tokens; longer prompts take several steps. Without it these are 256 on a "
        "CPU and 2,048 on a GPU.",
        unit="tokens",
        change_when="Long prompts delay the tokens of running calls (less), or the first token comes too late (more).",
    )
    admission: str = option(
        "reserve",
        "A request gets pages for its whole output when it enters the batch (`reserve`), or as tokens come "
        "(`optimistic`), at the price of preemptions and of a wider bound of fairness.",
        choices=tuple(AdmissionMode),
        change_when="Callers ask for far more `max_tokens` than they use (`optimistic`).",
    )

    def __post_init__(self) -> None:
        WorkerOptions.__post_init__(self)
        self._check_models()
        check_positive(self, "block_tokens", "max_running", "token_budget", "step_seconds")
        require(self.preemption_quanta >= 0, f"preemption_quanta: must be at least 0, got {self.preemption_quanta}")
        _ = self.choice
        require(
            self.choice.name == "vllm" or not self.vllm_args,
            f"vllm_args: must not be given with the engine {self.choice.name}, got {self.vllm_args!r}",
        )
        require(
            self.choice.name == "vllm" or not self.lora,
            f"lora: must not be given with the engine {self.choice.name}, got {self.lora!r}",
        )
        try:
            check_sizes(
                max_running=self.max_running,
                token_budget=self.token_budget,
                kv_tokens=self.cache.tokens,
                block_tokens=self.block_tokens or (1 if self.choice.name == "vllm" else BLOCK_TOKENS),
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def _check_models(self) -> None:
        adapters = [pair.partition("=") for pair in self.lora.split(",")] if self.lora else []
        require(
            all(name.strip() and place.strip() for name, _, place in adapters),
            f"lora: expected NAME=FOLDER or NAME=HUB_ID, separated by commas, got {self.lora!r}",
        )
        names = [*self.model_names, *(name.strip() for name, *_ in adapters)]
        require(all(names), f"model: each model must have a name, got {self.model!r}")
        require(len(set(names)) == len(names), f"model: each must have a name of its own, got {','.join(names)}")

    @property
    def choice(self) -> EngineChoice:
        """The engine and its variant; raises ConfigError."""
        return EngineChoice.parse(self.engine)

    @property
    def cache(self) -> CacheSize:
        """The size of the KV cache; raises ConfigError."""
        return CacheSize.parse(self.kv_tokens)

    @property
    def _models(self) -> list[tuple[str, str]]:
        """The name of each model in requests, and where it is."""
        models = self.model.split(",") if self.choice.name == "fake" else [self.model]
        return [_named(model.strip()) for model in models]

    @property
    def model_place(self) -> str:
        """The name, folder or id of the model's files."""
        return self._models[0][1]

    @property
    def model_names(self) -> list[str]:
        """The names of the models in requests: one, or several with the fake engine."""
        return [name for name, _ in self._models]

    @property
    def lora_adapters(self) -> dict[str, str]:
        """The folder or hub id of each LoRA adapter, by its name in requests."""
        pairs = (pair.partition("=") for pair in self.lora.split(",")) if self.lora else ()
        return {name.strip(): place.strip() for name, _, place in pairs}


def _named(model: str) -> tuple[str, str]:
    """Return the name of a model in requests, and its place, of `name=place` or a place alone."""
    name, mark, place = model.partition("=")
    if mark and "/" not in name:
        return name.strip(), place.strip()
    return _last_part(model), model


def _last_part(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1]

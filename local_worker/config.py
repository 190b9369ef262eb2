"""The worker's configuration."""

from dataclasses import dataclass

from local_worker.core.device_sizes import BLOCK_TOKENS, check_sizes
from local_worker.core.limits import AdmissionMode
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
        "makes them up, without a model.",
        choices=("transformers", "vllm", "fake"),
        change_when="A model needs several GPUs or a quantization (`vllm`), or you rehearse a deployment without a "
        "model (`fake`).",
    )
    fake_step_seconds: float = option(
        0.0,
        "Each step of the engine `fake` takes this time.",
        unit="seconds",
        change_when="A rehearsal should keep workers as busy as a model would.",
    )
    fake_token_bytes: int = option(
        1,
        "A prompt's token stands for this many bytes of text at the engine `fake`.",
        unit="bytes",
        change_when="Prompts should have as many tokens as at a model, where a token stands for about four bytes.",
    )
    vllm_args: str = option(
        "",
        "These are more arguments of vLLM's engine: a YAML file, or a mapping such as `{tensor_parallel_size: 2}`.",
        unit="path or YAML",
        change_when="The engine is `vllm`, and a model needs several GPUs, a quantization or another of its options.",
    )
    vllm_runner: str = option(
        "v1",
        "vLLM computes with this one of its two model runners. No GPU has run either of them under the worker.",
        choices=("v1", "v2"),
        change_when="An installed vLLM has no `v1` any more, or a comparison on your GPU says that `v2` is faster.",
    )
    model: str = option(
        BUILT_IN,
        "The worker serves the built-in model of this name, the model in this folder, or the one with this id at the "
        "hub. The engine `fake` takes several names, separated by commas.",
        unit="name, path or id",
        change_when="You serve a model of your choice; the built-in one is for trying.",
    )
    lora: str = option(
        "",
        "Requests may also name these LoRA adapters of the model: each is NAME=FOLDER or NAME=HUB_ID, separated by "
        "commas. Only the engine `vllm` computes with adapters.",
        unit="name=path or name=id",
        change_when="Callers need variants of the model, which were trained as adapters of it.",
    )
    served_name: str = option(
        "",
        "Requests name the model like this. Without it they use the last part of the model's path or id.",
        unit="text",
        change_when="The name should stay when the model is replaced.",
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
    threads: int | None = option(
        None,
        "This many threads compute on a CPU. Without it there is one for each core.",
        unit="threads",
        change_when="Several workers or other processes share the cores.",
    )
    batch_invariant: bool = option(
        False,
        "A request's logits do not depend on the other requests in the batch. Steps take longer. Only the engine "
        "`transformers` can do this.",
        change_when="Outputs have to be reproducible to the bit.",
    )
    kv_tokens: int | None = option(
        None,
        "The KV cache holds this many tokens; the bound of fairness grows with it. Without it the cache has the size "
        "that `memory_fraction` allows, on a CPU at most 4,096 tokens.",
        unit="tokens",
        change_when="Prompts are too long for the cache, or the bound is too wide.",
    )
    memory_fraction: float = option(
        0.3,
        "The KV cache takes this part of the memory that the weights leave free. With the engine `vllm`, weights and "
        "cache take this part of all memory.",
        unit="0 to 1",
        change_when="The worker has a GPU to itself, where 0.9 is usual.",
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
        check_positive(self, "block_tokens", "fake_token_bytes", "max_running", "token_budget", "threads")
        require(
            self.engine == "vllm" or not self.vllm_args,
            f"vllm_args: must not be given with the engine {self.engine}, got {self.vllm_args!r}",
        )
        require(
            self.engine == "vllm" or self.vllm_runner == "v1",
            f"vllm_runner: must not be given with the engine {self.engine}, got {self.vllm_runner!r}",
        )
        require(
            self.engine == "vllm" or not self.lora,
            f"lora: must not be given with the engine {self.engine}, got {self.lora!r}",
        )
        require(
            self.engine == "transformers" or not self.batch_invariant,
            f"batch_invariant: must not be given with the engine {self.engine}",
        )
        require(self.fake_step_seconds >= 0, f"fake_step_seconds: must be 0 or more, got {self.fake_step_seconds}")
        try:
            check_sizes(
                max_running=self.max_running,
                token_budget=self.token_budget,
                kv_tokens=self.kv_tokens,
                block_tokens=self.block_tokens or (1 if self.engine == "vllm" else BLOCK_TOKENS),
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        require(0 < self.memory_fraction < 1, f"memory_fraction: must be between 0 and 1, got {self.memory_fraction}")

    def _check_models(self) -> None:
        adapters = [pair.partition("=") for pair in self.lora.split(",")] if self.lora else []
        require(
            all(name.strip() and place.strip() for name, _, place in adapters),
            f"lora: expected NAME=FOLDER or NAME=HUB_ID, separated by commas, got {self.lora!r}",
        )
        names = [*self.model_names, *(name.strip() for name, *_ in adapters)]
        require(all(names), f"model: each model must have a name, got {self.model!r}")
        require(len(set(names)) == len(names), f"model: each must have a name of its own, got {','.join(names)}")
        require(
            not self.served_name or len(self._models) == 1,
            f"served_name: must not be given with several models, got {len(self._models)}: {self.model}",
        )

    @property
    def _models(self) -> list[str]:
        return self.model.split(",") if self.engine == "fake" else [self.model]

    @property
    def model_names(self) -> list[str]:
        """The names of the models in requests: one, or several with the fake engine."""
        return [self.served_name] if self.served_name else [_last_part(model) for model in self._models]

    @property
    def lora_adapters(self) -> dict[str, str]:
        """The folder or hub id of each LoRA adapter, by its name in requests."""
        pairs = (pair.partition("=") for pair in self.lora.split(",")) if self.lora else ()
        return {name.strip(): place.strip() for name, _, place in pairs}


def _last_part(model: str) -> str:
    return model.strip().rstrip("/").rsplit("/", 1)[-1]

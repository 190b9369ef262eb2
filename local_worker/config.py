"""The worker's configuration."""

from dataclasses import dataclass

from local_worker.core.device_sizes import BLOCK_TOKENS, check_sizes
from local_worker.core.limits import AdmissionMode
from local_worker.core.policies import POLICIES
from serving.config import ConfigError, addresses, check_listeners, cost_function, option, require
from serving.model_name import BUILT_IN
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls
from serving.shared_options import shared

MIN_SECRET = 16
WILDCARDS = ("", "0.0.0.0", "[::]")
DTYPES = ("float32", "bfloat16", "float16")
POSITIVE = (
    "block_tokens",
    "max_prompt_tokens",
    "max_running",
    "token_budget",
    "quantum_tokens",
    "threads",
    "max_waiting",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The options of a worker; serving.config says where values come from."""

    listen: str = option(
        "127.0.0.1:7100",
        "Gateways reach this worker at this address. Port 0 picks a free one.",
        unit="host:port",
        change_when="Gateways are on other machines, or several workers share this one.",
    )
    advertise: str = option(
        "",
        "Gateways are told to use this address instead of `listen`. Without it they are told `listen`.",
        unit="host:port",
        change_when="The worker listens on all addresses of its machine, or behind network address translation.",
    )
    scheduler: str = shared("scheduler")
    secret: str = shared("secret")
    name: str = option(
        "",
        "The worker has this name in metrics, logs and `fairlead status`. Without it the name is host name and port.",
        unit="text",
        change_when="The name should be the same after a restart, on another port.",
    )
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
    vllm_args: str = option(
        "",
        "These are more arguments of vLLM's engine: a YAML file, or a mapping such as `{tensor_parallel_size: 2}`.",
        unit="path or YAML",
        change_when="The engine is `vllm`, and a model needs several GPUs, a quantization or another of its options.",
    )
    model: str = option(
        BUILT_IN,
        "The worker serves the built-in model of this name, the model in this folder, or the one with this id at the "
        "hub. The engine `fake` takes several names, separated by commas.",
        unit="name, path or id",
        change_when="You serve a model of your choice; the built-in one is for trying.",
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
    max_prompt_tokens: int | None = option(
        None,
        "Longer prompts are refused (L_input of the bound). Without it a prompt may fill model or cache, less a block.",
        unit="tokens",
        change_when="Long prompts are not wanted, or the bound of fairness should be smaller.",
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
    max_waiting: int = option(
        4096,
        "The queue holds this many requests. When it is full, the newest request of the client with most is refused.",
        unit="requests",
        change_when="Callers should be refused rather than wait long (less).",
    )
    policy: str = option(
        "dlpm",
        "This policy orders the queue. `dlpm`, `drr` and `vtc` have a bound of fairness, the others have none; only "
        "`dlpm` follows cached prefixes.",
        choices=tuple(POLICIES),
        change_when="Requests share no prefixes (`vtc`; `vtc-predict` where output lengths repeat), apps differ in the "
        "tokens that they need (`wsc`), or there is only one user (`fcfs`).",
    )
    quantum_tokens: int = option(
        512,
        "Q^u: a refill grants a client this much service. The bound of fairness grows by twice as much.",
        unit="cost units",
        change_when="The hit rate is low although prefixes repeat (more), or the bound is too wide (less). "
        "`fairlead tune` recommends a number.",
    )
    cost: str = shared("cost")
    internal_certificate: str = shared("internal_certificate")
    internal_key: str = shared("internal_key")
    internal_authority: str = shared("internal_authority")
    health_listen: str = shared("health_listen")
    drain_seconds: float = option(
        20.0,
        "Running requests have this time to finish after SIGTERM. Gateways place the rest again.",
        unit="seconds",
        change_when="Requests take longer. The grace period of the pod or of the service manager has to cover it.",
    )
    metrics: str = shared("metrics")
    log_level: str = shared("log_level")

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        addresses(self.scheduler, "scheduler")
        check_listeners(self)
        self._check_models()
        cost_function(self.cost)
        for name in POSITIVE:
            value = getattr(self, name)
            require(value is None or value > 0, f"{name}: must be above 0, got {value}")
        require(
            self.engine == "vllm" or not self.vllm_args,
            f"vllm_args: must not be given with the engine {self.engine}, got {self.vllm_args!r}",
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
        require(
            self.advertise != "" or self.listen.rpartition(":")[0] not in WILDCARDS,
            f"advertise: must be given, since gateways cannot reach a worker at {self.listen}",
        )

    def _check_models(self) -> None:
        names = self.model_names
        require(all(names), f"model: each model must have a name, got {self.model!r}")
        require(len(set(names)) == len(names), f"model: each must have a name of its own, got {','.join(names)}")
        require(
            not self.served_name or len(self._models) == 1,
            f"served_name: must not be given with several models, got {len(self._models)}: {self.model}",
        )

    @property
    def mutual_tls(self) -> MutualTls | None:
        """The certificates for mutual TLS with other services, or None; raises ConfigError for unusable files."""
        return load_mutual_tls(self.internal_certificate, self.internal_key, self.internal_authority)

    @property
    def schedulers(self) -> list[str]:
        """The address of every scheduler to which the worker attaches."""
        return addresses(self.scheduler, "scheduler")

    @property
    def _models(self) -> list[str]:
        return self.model.split(",") if self.engine == "fake" else [self.model]

    @property
    def model_names(self) -> list[str]:
        """The names of the models in requests: one, or several with the fake engine."""
        return [self.served_name] if self.served_name else [_last_part(model) for model in self._models]


def _last_part(model: str) -> str:
    return model.strip().rstrip("/").rsplit("/", 1)[-1]

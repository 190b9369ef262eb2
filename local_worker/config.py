"""The worker's configuration."""

import os
from dataclasses import dataclass

from local_worker.core.device_sizes import check_sizes
from local_worker.core.limits import AdmissionMode
from local_worker.core.policies import POLICIES
from serving.config import ConfigError, addresses, check_listeners, cost_function, option, require
from serving.model_name import BUILT_IN
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls

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
    """See serving.config for where values come from."""

    listen: str = option("127.0.0.1:7100", "address to listen on, host:port; port 0 picks a free one")
    advertise: str = option("", "address that gateways reach this worker at; default: the one listened on")
    scheduler: str = option("127.0.0.1:7050", "address of the global scheduler, or of several: host:port,host:port")
    secret: str = option("", "the cluster secret, at least 16 characters; required")
    name: str = option("", "stable name of this worker; default: host name and port")
    engine: str = option(
        "transformers", "what computes: a model, or a deterministic stand-in", choices=("transformers", "fake")
    )
    fake_step_seconds: float = option(0.0, "seconds that a step of the fake engine takes")
    model: str = option(
        BUILT_IN, "the built-in model's name, a local path or a hub id; the fake engine serves several: name,name"
    )
    served_name: str = option("", "the name that requests use; default: the last part of the model's path or id")
    device: str = option("auto", "where the model runs", choices=("auto", "cpu", "cuda"))
    dtype: str = option(
        "auto", "of weights and KV cache; auto: float32 on the CPU, bfloat16 on CUDA", choices=("auto", *DTYPES)
    )
    threads: int = option(os.cpu_count() or 1, "compute threads of the engine on the CPU")
    batch_invariant: bool = option(False, "make a request's logits independent of the rest of the batch, at some cost")
    kv_tokens: int | None = option(
        None, "capacity of the KV cache in tokens; default: what memory_fraction holds, on the CPU at most 4096"
    )
    memory_fraction: float = option(
        0.3, "part, 0 to 1, of the memory left free by the weights that the KV cache may take"
    )
    block_tokens: int = option(16, "tokens per block and KV page")
    max_prompt_tokens: int | None = option(
        None, "longest prompt accepted (L_input of the bounds); default: context or KV cache, less a block for output"
    )
    max_running: int | None = option(None, "most requests in a batch; default: 32 on the CPU, 128 on CUDA")
    token_budget: int | None = option(
        None,
        "most tokens computed per step: longer prompts are prefilled in chunks; default: 256 on the CPU, 2048 on CUDA",
    )
    admission: str = option(
        "reserve",
        "pages on entry: for the whole output, or as tokens come, at the price of preemptions and of a wider bound",
        choices=tuple(AdmissionMode),
    )
    max_waiting: int = option(4096, "most requests in the queue")
    policy: str = option("dlpm", "the queue policy", choices=tuple(POLICIES))
    quantum_tokens: int = option(512, "Q^u: service that a refill grants, in cost units")
    cost: str = option(
        "weighted-tokens", "what service costs: weighted-tokens[:w_e,w_q], profiled, normalized[:alpha,beta,gamma]"
    )
    internal_certificate: str = option("", "PEM file: with key and authority, mutual TLS between services")
    internal_key: str = option("", "PEM file: the internal certificate's key")
    internal_authority: str = option("", "PEM file: the authority of all internal certificates")
    health_listen: str = option("", "address that answers health checks in plain text, for probes; default: none")
    drain_seconds: float = option(20.0, "seconds that running requests may take to finish after SIGTERM")
    metrics: str = option("", "address of the Prometheus endpoint, host:port; default: none")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        addresses(self.scheduler, "scheduler")
        check_listeners(self)
        self._check_models()
        cost_function(self.cost)
        for name in POSITIVE:
            value = getattr(self, name)
            require(value is None or value > 0, f"{name}: must be above 0, got {value}")
        require(self.fake_step_seconds >= 0, f"fake_step_seconds: must be 0 or more, got {self.fake_step_seconds}")
        try:
            check_sizes(
                max_running=self.max_running,
                token_budget=self.token_budget,
                kv_tokens=self.kv_tokens,
                block_tokens=self.block_tokens,
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
            f"served_name: names one model, and model names {len(self._models)}: {self.model}",
        )

    @property
    def mutual_tls(self) -> MutualTls | None:
        """What this service shows the others; raises ConfigError."""
        return load_mutual_tls(self.internal_certificate, self.internal_key, self.internal_authority)

    @property
    def schedulers(self) -> list[str]:
        """Every scheduler's address."""
        return addresses(self.scheduler, "scheduler")

    @property
    def _models(self) -> list[str]:
        return self.model.split(",") if self.engine == "fake" else [self.model]

    @property
    def model_names(self) -> list[str]:
        """What requests call the models: one, or with the fake engine several."""
        return [self.served_name] if self.served_name else [_last_part(model) for model in self._models]


def _last_part(model: str) -> str:
    return model.strip().rstrip("/").rsplit("/", 1)[-1]

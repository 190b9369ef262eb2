"""The adapter's configuration."""

from dataclasses import dataclass

from fairlead.errors import listed
from local_worker.worker_options import WorkerOptions
from serving.config import addresses, check_positive, option, require

HTTP, GRPC = SCHEMES = ("http", "grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig(WorkerOptions):
    """The options of an adapter; serving.config says where values come from."""

    engine: str = option(
        "127.0.0.1:8000",
        "`vllm serve` answers HTTP at this address; with `grpc://` before it, `vllm serve --grpc` answers gRPC.",
        unit="[scheme://]host:port",
        change_when="The engine listens on another port of the pod, or speaks gRPC.",
    )
    engine_api_key: str = option(
        "",
        "The engine expects this key, its `--api-key`.",
        unit="text",
        change_when="The engine requires a key.",
    )
    tokenizer: str = option(
        "",
        "The files of the model's tokenizer are in this folder, or on the hub by this id. Without it an engine that "
        "speaks gRPC is asked for them, which it can answer if it was started with the path of a folder.",
        unit="path or id",
        change_when="The engine speaks gRPC and was started with the id of a model on the hub.",
    )
    kv_events: str = option(
        "",
        "The engine publishes events of its KV cache at this ZeroMQ address, `endpoint` in its `--kv-events-config`. "
        "Without it no prefix counts as cached: neither for the order of requests nor for their cost.",
        unit="tcp://host:port",
        change_when="Always where the engine publishes events.",
    )
    kv_replay: str = option(
        "",
        "The engine repeats events at this ZeroMQ address, its `replay_endpoint`: those before the adapter began, and "
        "those that it missed. Without it all blocks count as not cached after a gap.",
        unit="tcp://host:port",
        change_when="Always where the engine has a replay endpoint.",
    )
    pickers: str = option(
        "",
        "Endpoint pickers behind Envoy listen at these addresses, separated by commas. A host's addresses are looked "
        "up every 2 s, and the adapter attaches to each: those of a headless Service of Kubernetes are its ready pods.",
        unit="host:port",
        change_when="Envoy sends requests to the same engine. `scheduler` may be empty then, where no gateway of "
        "Fairlead sends any.",
    )
    revision: str = option(
        "",
        "Workers with the same files of the same model have this in common. Without it, it is the path or id of the "
        "model at the engine.",
        unit="text",
        change_when="Engines have the same files at different paths, or other files at the same path.",
    )
    max_running: int = option(
        128,
        "At most this many requests are at the engine; at most its `--max-num-seqs`. Others wait here, in the order "
        "of the policy.",
        unit="requests",
        change_when="The engine's `--max-num-seqs` is not 128.",
    )
    token_budget: int = option(
        2048,
        "While the engine has this many prompt tokens to compute, it is given no further request; its "
        "`--max-num-batched-tokens`.",
        unit="tokens",
        change_when="The engine's `--max-num-batched-tokens` is not 2,048.",
    )

    def __post_init__(self) -> None:
        WorkerOptions.__post_init__(self)
        require(self.scheme in SCHEMES, f"engine: expected one of {listed(SCHEMES)} before ://, got {self.engine!r}")
        require(
            len(addresses(self.engine_address, "engine")) == 1, f"engine: expected one host:port, got {self.engine!r}"
        )
        if self.scheme == HTTP:
            require(self.tokenizer == "", "tokenizer: is only for an engine that speaks gRPC; this one has its own")
        else:
            require(self.engine_api_key == "", "engine_api_key: is not sent over gRPC, which has no keys")
            require(self.kv_events == "", "kv_events: must not be given, since gRPC brings the engine's events")
        _ = self.picker_names
        check_positive(self, "max_running", "token_budget")
        for name in ("kv_events", "kv_replay"):
            text: str = getattr(self, name)
            require(text == "" or "://" in text, f"{name}: expected tcp://host:port, got {text!r}")
        require(
            self.kv_events != "" or self.kv_replay == "",
            f"kv_replay: must not be given without kv_events, got {self.kv_replay!r}",
        )
        require("@" not in self.revision, f"revision: must not contain '@', got {self.revision!r}")

    @property
    def scheme(self) -> str:
        """The protocol of the engine, one of SCHEMES."""
        scheme, mark, _ = self.engine.partition("://")
        return scheme if mark else HTTP

    @property
    def engine_address(self) -> str:
        """The address at which the engine answers, as host:port."""
        return self.engine.rpartition("://")[2]

    @property
    def picker_names(self) -> list[str]:
        """Return the names of the endpoint pickers, each host:port."""
        return addresses(self.pickers, "pickers") if self.pickers else []

    @property
    def schedulers(self) -> list[str]:
        """See WorkerOptions."""
        return addresses(self.scheduler, "scheduler") if self.scheduler or not self.pickers else []

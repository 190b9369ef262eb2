"""The adapter's configuration."""

from dataclasses import dataclass
from urllib.parse import unquote

from local_worker.worker_options import WorkerOptions
from serving.config import addresses, check_positive, option, require

HTTP = "http://"
KV_ADDRESSES = 2  # of events, and of those that are repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig(WorkerOptions):
    """The options of an adapter; serving.config says where values come from."""

    engine: str = option(
        "127.0.0.1:8000",
        "`vllm serve` answers HTTP at this address, with `http://:KEY@` before it if it expects a key.",
        unit="[http://][:key@]host:port",
        change_when="The engine listens on another port of the pod, or requires a key.",
    )
    kv_events: str = option(
        "",
        "The engine publishes events of its KV cache at this ZeroMQ address, `endpoint` in its `--kv-events-config`, "
        "and repeats them at a second one, its `replay_endpoint`: those before the adapter began, and those that it "
        "missed. Without the first no prefix counts as cached, neither for the order of requests nor for their cost; "
        "without the second none after a gap.",
        unit="tcp://host:port[,tcp://host:port]",
        change_when="Always where the engine publishes events.",
    )
    pickers: str = option(
        "",
        "Endpoint pickers behind Envoy listen at these addresses, separated by commas. A host's addresses are looked "
        "up every 2 s, and the adapter attaches to each: those of a headless Service of Kubernetes are its ready pods.",
        unit="host:port",
        change_when="Envoy sends requests to the same engine. `scheduler` may be empty then, where no gateway of "
        "Fairlead sends any.",
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
        require("://" not in self._location, f"engine: expected {HTTP} or nothing before it, got {self.engine!r}")
        require(
            len(addresses(self.engine_address, "engine")) == 1, f"engine: expected one host:port, got {self.engine!r}"
        )
        _ = self.picker_names
        check_positive(self, "max_running", "token_budget")
        events, *others = self.kv_event_addresses
        require(
            len(others) < KV_ADDRESSES and all("://" in address for address in (events, *others) if address),
            f"kv_events: expected tcp://host:port[,tcp://host:port], got {self.kv_events!r}",
        )
        require(events != "" or not others, f"kv_events: the first address must not be empty, got {self.kv_events!r}")

    @property
    def engine_address(self) -> str:
        """The address at which the engine answers, as host:port."""
        return self._location.rpartition("@")[2]

    @property
    def engine_api_key(self) -> str:
        """The key that the engine expects; empty for none."""
        user, mark, _ = self._location.rpartition("@")
        return unquote(user.removeprefix(":")) if mark else ""

    @property
    def _location(self) -> str:
        return self.engine.removeprefix(HTTP)

    @property
    def kv_event_addresses(self) -> list[str]:
        """The addresses of events, empty for none, and of those that are repeated, if it is known."""
        return [address.strip() for address in self.kv_events.split(",")]

    @property
    def picker_names(self) -> list[str]:
        """Return the names of the endpoint pickers, each host:port."""
        return addresses(self.pickers, "pickers") if self.pickers else []

    @property
    def schedulers(self) -> list[str]:
        return addresses(self.scheduler, "scheduler") if self.scheduler or not self.pickers else []

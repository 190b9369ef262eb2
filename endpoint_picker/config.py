"""The endpoint picker's configuration."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from global_scheduler.common_configuration import configured_leadership, configured_quantum
from global_scheduler.core.policies import DEFAULT_POLICY, POLICIES
from global_scheduler.leadership import Leadership
from serving.config import (
    MAX_PORT,
    ConfigError,
    addresses,
    check_positive,
    option,
    require,
)
from serving.cost import MAX_WEIGHT, WEIGHT_ONE, weight_thousandths
from serving.service_options import ServiceOptions

# Kubernetes' names of namespaces (RFC 1123 labels) and of other objects.
NAMESPACE, NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
KV_PORTS = 2  # of events, and of those that are repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerConfig(ServiceOptions):
    """The options of the endpoint picker; serving.config says where values come from."""

    listen: str = option(
        "127.0.0.1:9002",
        "Envoy reaches the picker at this address. Port 0 picks a free one.",
        unit="host:port",
        change_when="Envoy is on another machine.",
    )
    endpoints: str = option(
        "",
        "The engines of the pool, separated by commas, by the addresses that Envoy knows them by. A host's addresses "
        "are looked up every 2 s: those of a headless Service of Kubernetes are its ready pods. With `namespace/name` "
        "the engines are the ready pods of this InferencePool, at its target ports, which the Kubernetes API tells at "
        "once: that of the cluster in which the picker is a pod, or the one at `http://host:port/namespace/name`, "
        "without TLS and without a token, as `kubectl proxy` offers it.",
        unit="host:port, or an InferencePool",
        change_when="Always. Every pool has its own engines.",
    )
    policy: str = option(
        DEFAULT_POLICY,
        "This policy chooses the endpoint of a request; see the scheduler's option of the same name.",
        choices=tuple(POLICIES),
        change_when="You compare policies on a pool.",
    )
    quantum_tokens: int | None = option(
        None,
        "Q^w of `doubleq`, and only for it: after this much service from one endpoint a client's next requests go to "
        "another. Without it these are 4096.",
        unit="cost units",
        change_when="Prefixes are computed again on many engines (more), or clients queue at one engine while others "
        "are idle (less).",
    )
    max_running: int = option(
        256,
        "An engine runs this many requests at once: `--max-num-seqs` of vLLM, `--max-running-requests` of SGLang. "
        "It is given no more; the others wait in the picker, where the client with the least service goes first.",
        unit="requests",
        change_when="Always, unless the engines' own number is this one.",
    )
    client_requests: int = 1000  # of a client may wait in the picker; further ones are answered with 429
    kv_tokens: int = option(
        400_000,
        "An engine's KV cache holds this many tokens. The picker assumes that an engine caches what it was sent most "
        "recently, up to this size.",
        unit="tokens",
        change_when="Always; vLLM logs its number at start as `GPU KV cache size`.",
    )
    block_tokens: int = option(
        64,
        "Prefixes are compared in blocks of this many tokens.",
        unit="tokens",
        change_when="`kv_events` is given: it is the engines' own size then, `--block-size` of vLLM (16 on GPUs), "
        "`--page-size` of SGLang.",
    )
    kv_events: str = option(
        "",
        "Engines publish events of their KV caches at this ZeroMQ port of their hosts, further engines of a host at "
        "the next ports, and repeat them at a second port and the next ones: those before the picker began, and those "
        "that it missed. Without the first an engine is assumed to cache what it was sent most recently; without the "
        "second no block counts as cached after a gap.",
        unit="port[,port]",
        change_when="Engines publish events, at the ports in the `endpoint` and `replay_endpoint` of vLLM's "
        "`--kv-events-config`.",
    )
    token_budget: int | None = option(
        None,
        "Of prompts with more uncached tokens than a quarter of this, its `--max-num-batched-tokens`, an engine has "
        "three, and one of each client. Needs `kv_events`.",
        unit="tokens",
        change_when="`--long-prefill-token-threshold` of the engines is a quarter of it.",
    )
    # Tokens of answers are not seen. A streamed answer is charged this many for each second that it lasts, and at most
    # what its request allows.
    output_rate: float = 40.0
    objectives: str = option(
        "",
        "Weights of the objectives that requests name in `x-llm-d-inference-objective`. Others weigh 1.",
        unit="name=weight,...",
        change_when="Objectives deserve different shares.",
    )
    secret: str = option(
        "",
        "Adapters beside the engines attach with this secret, the cluster's, and tell which requests of which clients "
        "they have of Fairlead's gateways. Without it none attaches. It has at least 16 characters.",
        unit="text",
        change_when="Fairlead's gateways send requests to the same engines, through adapters.",
    )
    redis: str = option(
        "",
        "The Redis at this URL decides which of several pickers of a pool leads, and keeps what each client was given: "
        "pickers of a pool, and one that starts anew, have the same accounts. Only the leader is ready. Without it "
        "every picker is, with accounts of its own.",
        unit="URL",
        change_when="A second picker stands by, or a picker that starts anew should know its clients' service.",
    )

    def __post_init__(self) -> None:
        ServiceOptions.__post_init__(self)
        check_positive(self, "quantum_tokens", "max_running", "kv_tokens", "block_tokens")
        require(
            self.token_budget is None or (self.token_budget > 0 and bool(self.kv_events)),
            "token_budget: must be positive, and needs kv_events, which tell when a prompt is computed",
        )
        self._check_endpoints()
        require(
            not any(self.kv_event_ports) or find_spec("zmq") is not None,
            "kv_events: needs pyzmq: pip install 'fairlead-serving[adapter]'",
        )
        _ = self.weights, self.quantum

    def check_secret(self) -> None:
        """Raise ConfigError if there is a secret, and it is too short."""
        if self.secret:
            ServiceOptions.check_secret(self)

    def _check_endpoints(self) -> None:
        require(bool(self.endpoints), "endpoints: needs at least one host:port, or the namespace/name of a pool")
        if self.inference_pool is None:
            addresses(self.endpoints, "endpoints")
            return
        _, namespace, name = self.inference_pool
        is_named = re.fullmatch(NAMESPACE, namespace) and re.fullmatch(NAME, name)
        require(bool(is_named), f"endpoints: expected host:port,... or namespace/name, got {self.endpoints!r}")

    @property
    def inference_pool(self) -> tuple[str, str, str] | None:
        """URL of the Kubernetes API, empty for the cluster's own, namespace and name of the pool, if it is one."""
        if "/" not in self.endpoints:
            return None
        url, _, name = self.endpoints.rpartition("/")
        api, _, namespace = url.rpartition("/")
        return api, namespace, name

    @property
    def kv_event_ports(self) -> tuple[int, int]:
        """The ports of events and of those that are repeated, 0 for none; raises ConfigError."""
        parts = [part.strip() or "0" for part in self.kv_events.split(",")]
        is_right = len(parts) <= KV_PORTS and all(part.isdecimal() and int(part) <= MAX_PORT for part in parts)
        require(is_right, f"kv_events: expected PORT[,PORT], each at most {MAX_PORT}, got {self.kv_events!r}")
        events, replay = [*map(int, parts), 0][:KV_PORTS]
        return events, replay

    @property
    def quantum(self) -> int:
        """Return DoubleQ's quantum Q^w, in cost units; raises ConfigError when another policy is given one."""
        return configured_quantum(self.policy, self.quantum_tokens)

    @property
    def leadership(self) -> Leadership:
        """Return the leadership among the pickers of this pool, as configured; raises ConfigError."""
        return configured_leadership(self.redis, self.group)

    @property
    def group(self) -> str:
        """Return the name that the pickers of this pool have in common."""
        _, namespace, name = self.inference_pool or ("", "", "")
        return f"picker:{f'{namespace}/{name}' if name else self.endpoints}"

    @property
    def weights(self) -> Mapping[str, int]:
        """Return the weight of each objective in thousandths; raises ConfigError."""
        pairs = [pair.partition("=") for pair in self.objectives.split(",") if pair]
        return {name.strip(): _weight(name.strip(), text) for name, _, text in pairs}


def _weight(name: str, text: str) -> int:
    expected = f"objectives: expected name=weight, weight above 0 and at most {MAX_WEIGHT:,}, got {name}={text}"
    try:
        weight = float(text)
    except ValueError as error:
        raise ConfigError(expected) from error
    require(bool(name) and 1 / WEIGHT_ONE <= weight <= MAX_WEIGHT, expected)
    return weight_thousandths(weight)

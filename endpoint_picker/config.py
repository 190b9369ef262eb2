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
    check_listeners,
    check_positive,
    check_secrets,
    cost_function,
    option,
    require,
)
from serving.cost import MAX_WEIGHT, WEIGHT_ONE, weight_thousandths
from serving.rpc.mutual_tls import InternalTlsOptions
from serving.shared_options import shared

# Kubernetes' names of namespaces (RFC 1123 labels) and of other objects.
NAMESPACE, NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
POSITIVE = (
    "quantum_tokens",
    "endpoint_requests",
    "client_requests",
    "endpoint_kv_tokens",
    "block_tokens",
    "engine_metrics_seconds",
    "max_index_blocks",
    "output_rate",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerConfig(InternalTlsOptions):
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
        "are looked up every 2 s: those of a headless Service of Kubernetes are its ready pods.",
        unit="host:port",
        change_when="Always, unless `inference_pool` names them. Every pool has its own engines.",
    )
    inference_pool: str = option(
        "",
        "The engines are the ready pods of this InferencePool, at its target ports, which the Kubernetes API tells at "
        "once. Give either this or `endpoints`.",
        unit="namespace/name",
        change_when="The picker runs on Kubernetes and an InferencePool names the engines.",
    )
    kubernetes: str = option(
        "",
        "The Kubernetes API is reached at this URL, without TLS and without a token, as `kubectl proxy` offers it. "
        "Without it the API is that of the cluster in which the picker is a pod, with the pod's service account.",
        unit="http://host:port",
        change_when="The picker runs outside of the cluster, to be tried out.",
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
    cost: str = shared("cost")
    endpoint_requests: int = option(
        256,
        "An engine runs this many requests at once: `--max-num-seqs` of vLLM, `--max-running-requests` of SGLang. "
        "It is given no more; the others wait in the picker, where the client with the least service goes first.",
        unit="requests",
        change_when="Always, unless the engines' own number is this one.",
    )
    client_requests: int = option(
        1000,
        "So many requests of a client may wait in the picker. Further ones are answered with 429.",
        unit="requests",
        change_when="Clients rightly send larger bursts, or their prompts take too much memory while they wait.",
    )
    endpoint_kv_tokens: int = option(
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
        change_when="`kv_events_port` is given: it is the engines' own size then, `--block-size` of vLLM (16 on GPUs), "
        "`--page-size` of SGLang.",
    )
    kv_events_port: int = option(
        0,
        "Engines publish events of their KV caches at this ZeroMQ port of their hosts, further engines of a host at "
        "the next ports. Without it an engine is assumed to cache what it was sent most recently.",
        unit="port",
        change_when="Engines publish events, at the port in the `endpoint` of vLLM's `--kv-events-config`.",
    )
    kv_replay_port: int = option(
        0,
        "Engines repeat events at this ZeroMQ port, further engines of a host at the next ports: those before the "
        "picker began, and those that it missed. Without it no block counts as cached after a gap.",
        unit="port",
        change_when="Engines have a replay endpoint, `replay_endpoint` of vLLM's `--kv-events-config`.",
    )
    tokenize: str = option(
        "/tokenize",
        "With `kv_events_port`, engines are asked at this path which tokens a prompt has. Without it, only prefixes of "
        "prompts that are token ids are known from events.",
        unit="path",
        change_when="Engines tokenize at another path.",
    )
    engine_metrics: str = option(
        "/metrics",
        "Engines show their Prometheus metrics at this path: the requests that they run, those that wait, and what of "
        "the KV cache is used. Without it, or without an answer, the picker knows what it placed there.",
        unit="path",
        change_when="Engines are TensorRT-LLM's (`/prometheus/metrics`), or have metrics of no known name (empty).",
    )
    engine_metrics_seconds: float = option(
        1.0,
        "This time passes between two readings of the engines' metrics.",
        unit="seconds",
        change_when="The engines have many other callers (less), or there are hundreds of engines (more).",
    )
    max_index_blocks: int = option(
        1_000_000,
        "The prefix index holds this many blocks of `block_tokens`. Requests do not follow prefixes that it lacks.",
        unit="blocks",
        change_when="The engines together cache more: the sum of their KV tokens, divided by `block_tokens`.",
    )
    output_rate: float = option(
        40.0,
        "Tokens of answers are not seen. A streamed answer is charged this many for each second that it lasts, and at "
        "most what its request allows.",
        unit="tokens per second",
        change_when="Your engines generate faster or slower for one request.",
    )
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
    accepted_secret: str = shared("accepted_secret")
    redis: str = option(
        "",
        "The Redis at this URL decides which of several pickers of a pool leads, and keeps what each client was given: "
        "pickers of a pool, and one that starts anew, have the same accounts. Only the leader is ready. Without it "
        "every picker is, with accounts of its own.",
        unit="URL",
        change_when="A second picker stands by, or a picker that starts anew should know its clients' service.",
    )
    redis_password: str = shared("redis_password")
    redis_ca: str = shared("redis_ca")
    internal_certificate: str = shared("internal_certificate")
    internal_key: str = shared("internal_key")
    internal_authority: str = shared("internal_authority")
    health_listen: str = shared("health_listen")
    metrics: str = shared("metrics")
    log_level: str = shared("log_level")

    def __post_init__(self) -> None:
        check_listeners(self)
        cost_function(self.cost)
        check_positive(self, *POSITIVE)
        self._check_endpoints()
        for name in ("engine_metrics", "tokenize"):
            path: str = getattr(self, name)
            require(path[:1] in ("", "/"), f"{name}: expected a path that begins with '/', got {path!r}")
        for name in ("kv_events_port", "kv_replay_port"):
            port: int = getattr(self, name)
            require(0 <= port <= MAX_PORT, f"{name}: must be at least 0 and at most {MAX_PORT}, got {port}")
        require(
            not self.kv_events_port or find_spec("zmq") is not None,
            "kv_events_port: needs pyzmq: pip install 'fairlead-serving[adapter]'",
        )
        if self.secret:
            check_secrets(self.secret, self.accepted_secret)
        _ = self.weights, self.quantum

    def _check_endpoints(self) -> None:
        if not self.inference_pool:
            require(bool(self.endpoints), "endpoints: needs at least one host:port, or give inference_pool")
            addresses(self.endpoints, "endpoints")
            return
        require(not self.endpoints, "endpoints: must not be given with inference_pool")
        namespace, _, name = self.inference_pool.partition("/")
        is_named = re.fullmatch(NAMESPACE, namespace) and re.fullmatch(NAME, name)
        require(bool(is_named), f"inference_pool: expected namespace/name, got {self.inference_pool!r}")

    @property
    def quantum(self) -> int:
        """Return DoubleQ's quantum Q^w, in cost units; raises ConfigError when another policy is given one."""
        return configured_quantum(self.policy, self.quantum_tokens)

    @property
    def leadership(self) -> Leadership:
        """Return the leadership among the pickers of this pool, as configured; raises ConfigError."""
        return configured_leadership(self.redis, self.redis_password, self.redis_ca, self.group)

    @property
    def group(self) -> str:
        """Return the name that the pickers of this pool have in common."""
        return f"picker:{self.inference_pool or self.endpoints}"

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

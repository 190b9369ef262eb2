"""The gateway's configuration."""

import re
from dataclasses import dataclass

from gateway.tenants import CACHE_SCOPES
from serving.config import addresses, check_listeners, check_positive, check_secrets, cost_function, option, require
from serving.rpc.address import is_loopback
from serving.rpc.mutual_tls import InternalTlsOptions
from serving.rpc.tls import Certificate
from serving.shared_options import shared
from throttler.options import throttle_option

CUT = "cut"
ORIGIN = re.compile(r"https?://[^/\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig(InternalTlsOptions):
    """The options of the gateway; serving.config describes where their values come from."""

    listen: str = option(
        "127.0.0.1:7000",
        "The gRPC API listens at this address. With port 0 the system chooses a free port.",
        unit="host:port",
        change_when="Callers are on other machines. Then also set API keys and a TLS certificate.",
    )
    http_listen: str = option(
        "",
        "OpenAI's HTTP API listens at this address. Without it there is no HTTP API.",
        unit="host:port",
        change_when="Callers use an OpenAI client.",
    )
    page_listen: str = option(
        "",
        "The operators' page, which shows the service of each client, listens at this address. Without it there is no "
        "page. The page asks for the admin secret.",
        unit="host:port",
        change_when="Operators want to see in a browser what the cluster does.",
    )
    page_controls: str = option(
        "",
        "The page shows the buttons of the demo that listens on this Unix socket. Without it there are no buttons.",
        unit="path",
        change_when="Never by hand: `fairlead demo --watch` sets it.",
    )
    scheduler: str = shared("scheduler")
    secret: str = shared("secret")
    accepted_secret: str = shared("accepted_secret")
    keys: str = option(
        "",
        "This YAML file lists the API keys, each with its tenant. Without it there is one tenant and no key.",
        unit="path",
        change_when="Other people can reach the gateway.",
    )
    profiles: str = throttle_option("profiles")
    redis: str = throttle_option("redis")
    redis_password: str = shared("redis_password")
    redis_ca: str = shared("redis_ca")
    gateways: int = throttle_option("gateways")
    http_hosts: str = option(
        "",
        "While the HTTP port needs no key and has no TLS, it is served under these host names besides those of this "
        "machine, as is the page without TLS. A web page could otherwise have its own name lead to the gateway.",
        unit="names, separated by commas",
        change_when="Callers reach a gateway without keys, or the page, by a name of the network.",
    )
    http_origins: str = option(
        "",
        "Web pages of these origins may call the HTTP port from a browser (CORS).",
        unit="scheme://host:port, separated by commas",
        change_when="A web application calls the gateway from its users' browsers.",
    )
    tls_certificate: str = option(
        "",
        "This PEM file holds the certificate chain that the gateway presents to callers. Without it the gateway does "
        "not use TLS.",
        unit="path",
        change_when="Callers reach the gateway over a network.",
    )
    tls_key: str = option(
        "", "This PEM file holds the key of `tls_certificate`.", unit="path", change_when="`tls_certificate` is set."
    )
    internal_certificate: str = shared("internal_certificate")
    internal_key: str = shared("internal_key")
    internal_authority: str = shared("internal_authority")
    health_listen: str = shared("health_listen")
    insecure: bool = option(
        False,
        "The gateway may listen beyond this machine without API keys.",
        change_when="A proxy in front of the gateway admits only callers that may use the models.",
    )
    cache_scope: str = option(
        "tenant",
        "Cached prefixes are shared by the users of a tenant (`tenant`), by the calls of one user (`user`) or by all "
        "callers (`deployment`).",
        choices=tuple(CACHE_SCOPES),
        change_when="Users of one tenant must not be able to infer the prompts of others from response times (`user`), "
        "or all tenants trust each other (`deployment`).",
    )
    throttle: str = throttle_option("throttle")
    user_per_minute: int = throttle_option("user_per_minute")
    app_per_minute: int = throttle_option("app_per_minute")
    cost: str = shared("cost")
    max_streams_per_client: int = option(
        256,
        "One client may have this number of calls open. Above it only calls of interactions in progress are admitted.",
        unit="calls",
        change_when="One client serves many people, for example a backend that does not name its users.",
    )
    max_streams: int = option(
        4096,
        "All clients together may have this number of calls open, the users of one tenant at most four fifths of it.",
        unit="calls",
        change_when="The gateway runs out of memory (decrease it), or refuses calls although it has memory (increase "
        "it).",
    )
    excess_max_tokens: str = option(
        CUT,
        "A `max_tokens` of a request over HTTP that is more than the prompt leaves of the model's context is cut to "
        "that (`cut`), or the request is refused (`refuse`).",
        choices=(CUT, "refuse"),
        change_when="Callers must be told that an output cannot be as long as they ask for.",
    )
    waiting_prompts_mib: int = option(
        64,
        "Prompts that are read and not tokenized yet have at most this size together, those of one client as much as "
        "is free, and those of one tenant four times as much. Until a prompt is tokenized, a gateway needs about five "
        "times its size.",
        unit="MiB",
        change_when="Callers send many long prompts at one time and gateways have memory (increase it).",
    )
    held_outputs_mib: int = option(
        64,
        "Outputs that are not streamed and not complete yet, and those that callers are slow to read, may take this "
        "much memory together. Above it the calls of the clients that hold most end.",
        unit="MiB",
        change_when="Callers ask for many log-probabilities at one time and gateways have memory (increase it).",
    )
    request_seconds: float = option(
        30.0,
        "The message of a call must arrive within this time.",
        unit="seconds",
        change_when="Callers send long prompts over slow links.",
    )
    reader_seconds: float = option(
        60.0,
        "A call is aborted when its output is complete but the caller has read none of it for this time. An HTTP "
        "connection is closed when its caller has read nothing for this time of what waits to be sent.",
        unit="seconds",
        change_when="Callers that pause between reads lose calls (increase it), or callers that never read keep too "
        "many calls open (decrease it).",
    )
    connection_seconds: float = option(
        0.0,
        "A gRPC connection from a caller is replaced after about this time; calls in progress continue on it until "
        "they end. With 0 it is kept for as long as the caller keeps it.",
        unit="seconds",
        change_when="Gateways are added behind a load balancer that distributes connections, such as a Service of "
        "Kubernetes. Without it callers stay at the gateways to which they are connected.",
    )
    response_store_mib: int = option(
        64,
        "Responses of OpenAI's API are stored in at most this memory, so that callers may continue them. With 0 "
        "nothing is stored.",
        unit="MiB",
        change_when="Callers find that responses are forgotten too early (increase it), or what callers send must not "
        "outlive a call (0).",
    )
    response_store_seconds: float = option(
        3600.0,
        "A stored response is forgotten after this time.",
        unit="seconds",
        change_when="Callers continue their conversations later, or what they send must be forgotten earlier.",
    )
    drain_seconds: float = option(
        20.0,
        "Open calls have this time to finish after SIGTERM.",
        unit="seconds",
        change_when="Calls take longer. The grace period of the pod or of the service manager must be longer than "
        "this time.",
    )
    admin_secret: str = shared("admin_secret")
    metrics: str = shared("metrics")
    trace_ratio: float = option(
        1.0,
        "This part of the traces without failed and slow calls is exported. Traces with a failed or slow call are "
        "always exported.",
        unit="0 to 1",
        change_when="Your trace store is too small for every call.",
    )
    slow_seconds: float = option(
        30.0,
        "A call that takes this time or longer is slow, and its trace is exported for any value of `trace_ratio`.",
        unit="seconds",
        change_when="`trace_ratio` is below 1 and ordinary calls take longer.",
    )
    log_level: str = shared("log_level")

    def __post_init__(self) -> None:
        check_secrets(self.secret, self.accepted_secret)
        addresses(self.scheduler, "scheduler")
        check_listeners(self)
        cost_function(self.cost)
        positive = (
            "user_per_minute",
            "app_per_minute",
            "max_streams_per_client",
            "max_streams",
            "waiting_prompts_mib",
            "held_outputs_mib",
            "drain_seconds",
            "gateways",
        )
        check_positive(self, *positive, "request_seconds", "reader_seconds", "response_store_seconds", "slow_seconds")
        for name in ("connection_seconds", "response_store_mib"):
            require(getattr(self, name) >= 0, f"{name}: must not be below 0, got {getattr(self, name)}")
        require(
            (self.tls_certificate == "") == (self.tls_key == ""), "tls_certificate, tls_key: give both of them, or none"
        )
        for origin in filter(None, self.http_origins.split(",")):
            require(ORIGIN.fullmatch(origin) is not None, f"http_origins: must be scheme://host:port, got {origin!r}")
        require(0 <= self.trace_ratio <= 1, f"trace_ratio: must be between 0 and 1, got {self.trace_ratio}")
        require(
            not self.page_listen or self.insecure or self.tls_certificate != "" or is_loopback(self.page_listen),
            f"page_listen: {self.page_listen} is reachable from other machines and there is no TLS: the admin secret "
            "would cross the network in clear; give --tls-certificate, or accept it with --insecure",
        )
        require(
            self.insecure or self.keys != "" or self.is_loopback,
            f"listen: {self.listen} is reachable from other machines and no keys are given: anyone could use the "
            "models; give --keys, or accept it with --insecure",
        )

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the public listeners, None without TLS; raises ConfigError."""
        return Certificate(self.tls_certificate, self.tls_key) if self.tls_certificate else None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listeners."""
        return all(is_loopback(address) for address in (self.listen, self.http_listen) if address)

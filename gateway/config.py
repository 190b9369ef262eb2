"""The gateway's configuration."""

import re
from dataclasses import dataclass

from gateway.tenants import CACHE_SCOPES
from serving.config import addresses, check_positive, option, require
from serving.rpc.address import is_loopback
from serving.rpc.tls import Certificate
from serving.service_options import admin_secret_option, scheduler_option
from throttler.options import ThrottleOptions

TLS_FILES = 2  # the certificate chain and its key
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")  # also of an extension of a browser, or of a desktop program


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig(ThrottleOptions):
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
    scheduler: str = scheduler_option()
    keys: str = option(
        "",
        "This YAML file lists the API keys, each with its tenant. Without it there is one tenant and no key.",
        unit="path",
        change_when="Other people can reach the gateway.",
    )
    http_hosts: str = option(
        "",
        "While the HTTP port needs no key and has no TLS, it is served under these host names besides those of this "
        "machine, as is the page without TLS: a web page could otherwise have its own name lead to the gateway. Web "
        "pages of the origins among them (`https://chat.example`) may call the HTTP port from a browser (CORS).",
        unit="names and scheme://host:port, separated by commas",
        change_when="Callers reach a gateway without keys, or the page, by a name of the network, or a web application "
        "calls the gateway from its users' browsers.",
    )
    tls: str = option(
        "",
        "Two PEM files: the certificate chain that the gateway presents to callers, and its key. Without them the "
        "gateway does not use TLS.",
        unit="paths, separated by commas",
        change_when="Callers reach the gateway over a network.",
    )
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
    # Calls that one client may have open; above it only calls of interactions in progress are admitted. None: a
    # sixteenth of `max_streams`.
    max_streams_per_client: int | None = None
    max_streams: int = option(
        4096,
        "All clients together may have this number of calls open, the users of one tenant at most four fifths of it, "
        "and one client a sixteenth; above that a client's interactions in progress continue.",
        unit="calls",
        change_when="The gateway runs out of memory (decrease it), or refuses calls although it has memory, or one "
        "client serves many people (increase it).",
    )
    # Prompts that are read and not tokenized yet have at most this size together, in MiB, those of one client as much
    # as is free, and those of one tenant four times as much. A gateway needs five times that.
    waiting_prompts_mib: int = 64
    # Outputs that are not streamed and not complete yet, and those that callers are slow to read, may take this memory
    # together, in MiB. Above it the calls of the clients that hold most end.
    held_outputs_mib: int = 64
    # The message of a call must arrive within this time, in seconds.
    request_seconds: float = 30.0
    # A call is aborted when its output is complete but the caller has read none of it for this time, in seconds. An
    # HTTP connection is closed when its caller has read nothing for this time of what waits to be sent.
    reader_seconds: float = 60.0
    # A gRPC connection from a caller is replaced after about this time, in seconds, so that callers reach gateways that
    # were added behind a load balancer of connections; calls in progress continue on it until they end.
    connection_seconds: float = 300.0
    response_store_mib: int = option(
        64,
        "Responses of OpenAI's API are stored for an hour in at most this memory, so that callers may continue them. "
        "With 0 nothing is stored.",
        unit="MiB",
        change_when="Callers find that responses are forgotten too early (increase it), or what callers send must not "
        "outlive a call (0).",
    )
    response_store_seconds: float = 3600.0  # until a stored response is forgotten
    drain_seconds: float = option(
        20.0,
        "Open calls have this time to finish after SIGTERM.",
        unit="seconds",
        change_when="Calls take longer. The grace period of the pod or of the service manager must be longer than "
        "this time.",
    )
    admin_secret: str = admin_secret_option()

    def __post_init__(self) -> None:
        ThrottleOptions.__post_init__(self)
        addresses(self.scheduler, "scheduler")
        check_positive(self, "max_streams", "drain_seconds")
        require(self.response_store_mib >= 0, f"response_store_mib: must not be below 0, got {self.response_store_mib}")
        require(
            self.tls == "" or len(self._tls_files) == TLS_FILES,
            f"tls: expected CERTIFICATE,KEY, got {self.tls!r}",
        )
        for origin in self.origins:
            require(ORIGIN.fullmatch(origin) is not None, f"http_hosts: must be scheme://host:port, got {origin!r}")
        require(
            not self.page_listen or self.insecure or self.tls != "" or is_loopback(self.page_listen),
            f"page_listen: {self.page_listen} is reachable from other machines and there is no TLS: the admin secret "
            "would cross the network in clear; give --tls, or accept it with --insecure",
        )
        require(
            self.insecure or self.keys != "" or self.is_loopback,
            f"listen: {self.listen} is reachable from other machines and no keys are given: anyone could use the "
            "models; give --keys, or accept it with --insecure",
        )

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the public listeners, None without TLS; raises ConfigError."""
        return Certificate(*self._tls_files) if self.tls else None

    @property
    def _tls_files(self) -> list[str]:
        return [path for path in map(str.strip, self.tls.split(",")) if path]

    @property
    def open_calls_per_client(self) -> int:
        """The number of calls that one client may have open."""
        return self.max_streams_per_client or max(self.max_streams // 16, 1)

    @property
    def hosts(self) -> list[str]:
        """The names in `http_hosts` that are no origins."""
        return [name for name in self._http_names if "://" not in name]

    @property
    def origins(self) -> list[str]:
        """The origins in `http_hosts`."""
        return [name for name in self._http_names if "://" in name]

    @property
    def _http_names(self) -> list[str]:
        return [name for name in map(str.strip, self.http_hosts.split(",")) if name]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listeners."""
        return all(is_loopback(address) for address in (self.listen, self.http_listen) if address)

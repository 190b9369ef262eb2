"""Options that several services have: default, help text, unit and the situation in which to change them."""

from dataclasses import dataclass
from functools import partial

from serving.config import check_listeners, check_secrets, cost_function, option
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls

scheduler_option = partial(
    option,
    "127.0.0.1:7050",
    "The global scheduler listens at this address. Addresses of several schedulers, of which one leads, are "
    "separated by commas.",
    unit="host:port",
    change_when="The scheduler runs on another machine, or there are several schedulers.",
)
admin_secret_option = partial(
    option,
    "",
    "Operators' calls (`fairlead status`, `drain`) carry this secret. Without it they carry the cluster secret.",
    unit="text",
    change_when="Operators should not have the secret with which services authenticate to each other.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of every service; serving.config says where values come from."""

    listen: str
    secret: str = option(
        "",
        "Services authenticate to each other with this secret. It is required and has at least 16 characters.",
        unit="text",
        change_when="Always. Every service of a cluster needs the same secret.",
    )
    accepted_secret: str = option(
        "",
        "Calls that carry this secret are accepted too, and so are interactions' tokens that it signed. It is empty or "
        "has at least 16 characters.",
        unit="text",
        change_when="You replace the secret of a running cluster; docs/operations.md has the steps.",
    )
    cost: str = option(
        "weighted-tokens",
        "Service is measured by this cost function: `weighted-tokens[:w_e,w_q]`, `profiled` or "
        "`normalized[:alpha,beta,gamma]`. All services need the same value; gateways and rate limit services use it "
        "for limits in cost units.",
        unit="name[:numbers]",
        change_when="You have measured what tokens of your model cost (`profiled`), or apps differ in the tokens that "
        "a call normally needs (`normalized`).",
    )
    internal_tls: str = option(
        "",
        "Three PEM files: the certificate that this service presents to the others, its key, and the certificate of "
        "the authority that signed those of all services. Without them services communicate without TLS.",
        unit="paths, separated by commas",
        change_when="Traffic between services crosses a network that you do not trust.",
    )
    health_listen: str = option(
        "",
        "This address answers gRPC health checks without TLS. Without it only `listen` answers them.",
        unit="host:port",
        change_when="`listen` uses TLS and the probes do not support it, such as those of a kubelet.",
    )
    metrics: str = option(
        "",
        "The Prometheus endpoint listens at this address. Without it there is no endpoint.",
        unit="host:port",
        change_when="Prometheus scrapes this service.",
    )
    log_level: str = option(
        "info",
        "Messages of this severity and above are logged.",
        choices=("debug", "info", "warning", "error"),
        change_when="You search for the cause of a fault (`debug`), or logs cost too much (`warning`).",
    )

    def __post_init__(self) -> None:
        self.check_secret()
        check_listeners(self)
        cost_function(self.cost)

    def check_secret(self) -> None:
        """Raise ConfigError unless there is a secret, and both secrets are long enough."""
        check_secrets(self.secret, self.accepted_secret)

    @property
    def mutual_tls(self) -> MutualTls | None:
        """The certificate of this service for mutual TLS, None without; raises ConfigError."""
        return load_mutual_tls(self.internal_tls)

"""Options that several services have: default, help text, unit and the situation in which to change them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from serving.config import option

_OPTIONS: Mapping[str, Callable[[], Any]] = {
    "secret": partial(
        option,
        "",
        "Services authenticate to each other with this secret. It is required and has at least 16 characters.",
        unit="text",
        change_when="Always. Every service of a cluster needs the same secret.",
    ),
    "accepted_secret": partial(
        option,
        "",
        "Calls that carry this secret are accepted too, and so are interactions' tokens that it signed. It is empty or "
        "has at least 16 characters.",
        unit="text",
        change_when="You replace the secret of a running cluster; docs/operations.md has the steps.",
    ),
    "admin_secret": partial(
        option,
        "",
        "Operators' calls (`fairlead status`, `drain`) carry this secret. Without it they carry the cluster secret.",
        unit="text",
        change_when="Operators should not have the secret with which services authenticate to each other.",
    ),
    "scheduler": partial(
        option,
        "127.0.0.1:7050",
        "The global scheduler listens at this address. Addresses of several schedulers, of which one leads, are "
        "separated by commas.",
        unit="host:port",
        change_when="The scheduler runs on another machine, or there are several schedulers.",
    ),
    "internal_tls": partial(
        option,
        "",
        "Three PEM files: the certificate that this service presents to the others, its key, and the certificate of "
        "the authority that signed those of all services. Without them services communicate without TLS.",
        unit="paths, separated by commas",
        change_when="Traffic between services crosses a network that you do not trust.",
    ),
    "health_listen": partial(
        option,
        "",
        "This address answers gRPC health checks without TLS. Without it only `listen` answers them.",
        unit="host:port",
        change_when="`listen` uses TLS and the probes do not support it, such as those of a kubelet.",
    ),
    "metrics": partial(
        option,
        "",
        "The Prometheus endpoint listens at this address. Without it there is no endpoint.",
        unit="host:port",
        change_when="Prometheus scrapes this service.",
    ),
    "cost": partial(
        option,
        "weighted-tokens",
        "Service is measured by this cost function: `weighted-tokens[:w_e,w_q]`, `profiled` or "
        "`normalized[:alpha,beta,gamma]`. All services need the same value; gateways and rate limit services use it "
        "for limits in cost units.",
        unit="name[:numbers]",
        change_when="You have measured what tokens of your model cost (`profiled`), or apps differ in the tokens that "
        "a call normally needs (`normalized`).",
    ),
    "log_level": partial(
        option,
        "info",
        "Messages of this severity and above are logged.",
        choices=("debug", "info", "warning", "error"),
        change_when="You search for the cause of a fault (`debug`), or logs cost too much (`warning`).",
    ),
}


def shared(name: str) -> Any:
    """Return a new config field for the option `name`; raise KeyError if this module has no such option."""
    return _OPTIONS[name]()

"""Options that several services have, each written once: default, help, unit and when to change it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from serving.config import option

_MUTUAL_TLS = "Traffic between services crosses a network that you do not trust. Set all three `internal_` options."
_OPTIONS: Mapping[str, Callable[[], Any]] = {
    "secret": partial(
        option,
        "",
        "Services show this secret to each other. It is required and has at least 16 characters.",
        unit="text",
        change_when="Always. Every service of a cluster needs the same.",
    ),
    "admin_secret": partial(
        option,
        "",
        "Operators' calls (`fairlead status`, `drain`) carry this secret. Without it they carry the cluster secret.",
        unit="text",
        change_when="Operators should not know the secret that services show to each other.",
    ),
    "scheduler": partial(
        option,
        "127.0.0.1:7050",
        "The global scheduler listens at this address. Several, of which one leads, are separated by commas.",
        unit="host:port",
        change_when="The scheduler runs on another machine, or several run.",
    ),
    "internal_certificate": partial(
        option,
        "",
        "This PEM file holds the certificate that this service shows to the others. Without it they speak no TLS.",
        unit="path",
        change_when=_MUTUAL_TLS,
    ),
    "internal_key": partial(
        option, "", "This PEM file holds the key of the internal certificate.", unit="path", change_when=_MUTUAL_TLS
    ),
    "internal_authority": partial(
        option,
        "",
        "This PEM file holds the authority that signed the internal certificates of all services.",
        unit="path",
        change_when=_MUTUAL_TLS,
    ),
    "health_listen": partial(
        option,
        "",
        "This address answers gRPC health checks without TLS. Without it only `listen` answers them.",
        unit="host:port",
        change_when="`listen` speaks TLS and probes cannot, such as those of a kubelet.",
    ),
    "metrics": partial(
        option,
        "",
        "The Prometheus endpoint listens at this address. Without it there is none.",
        unit="host:port",
        change_when="Prometheus scrapes this service.",
    ),
    "redis_password": partial(
        option,
        "",
        "Redis is given this password. Without it the password in the URL is used, if there is one.",
        unit="text",
        change_when="Redis asks for a password, and the URL is no secret.",
    ),
    "redis_ca": partial(
        option,
        "",
        "This PEM file holds the authorities that may have signed the certificate of Redis, for `rediss://` URLs. "
        "Without it the authorities that the system trusts may have signed it.",
        unit="path",
        change_when="Redis has a certificate of your own authority.",
    ),
    "cost": partial(
        option,
        "weighted-tokens",
        "Service is measured by this cost function: `weighted-tokens[:w_e,w_q]`, `profiled` or "
        "`normalized[:alpha,beta,gamma]`. Scheduler and workers need the same.",
        unit="name[:numbers]",
        change_when="A profile of your model says what tokens cost (`profiled`), or apps differ in what a call "
        "normally needs (`normalized`).",
    ),
    "log_level": partial(
        option,
        "info",
        "Messages of this severity and above are logged.",
        choices=("debug", "info", "warning", "error"),
        change_when="You look for a fault (`debug`), or logs cost too much (`warning`).",
    ),
}


def shared(name: str) -> Any:
    """Return a new config field for the option `name`; raises KeyError unless it is one of those above."""
    return _OPTIONS[name]()

"""The connections that docs/architecture.md lists."""

from itertools import product
from typing import NamedTuple

from tests.system.deploy.forms import NAMESPACE, ROOT
from tests.system.deploy.network_policies import Endpoint, Port

APP = "app.kubernetes.io/name"
OURS = [
    *(
        Endpoint(name, NAMESPACE, labels={APP: f"fairlead-{name}"})
        for name in ("gateway", "scheduler", "worker", "redis")
    ),
    Endpoint("stray", NAMESPACE),
]
OTHERS = [
    Endpoint("application", "default"),
    Endpoint("prometheus", "monitoring"),
    Endpoint("dns", "kube-system", labels={"k8s-app": "kube-dns"}),
    Endpoint("node's dns", address="169.254.20.10"),
    Endpoint("openshift's dns", "openshift-dns"),
    Endpoint("host"),
]
GROUPS = {"any pod": OURS, "any host": OTHERS}


class Connection(NamedTuple):
    """The client, the server and its port."""

    source: Endpoint
    target: Endpoint
    port: Port


def documented() -> set[Connection]:
    """The table of connections in docs/architecture.md, row by row."""
    _, _, table = (
        (ROOT / "docs/architecture.md").read_text().partition("| from | to | port | for |\n|---|---|---|---|\n")
    )
    rows = table.partition("\n\n")[0].splitlines()
    return {
        Connection(source, target, port)
        for row in rows
        for sources, targets, ports, _ in [[cell.strip() for cell in row.strip("|").split("|")]]
        for source, target, port in product(_endpoints(sources), _endpoints(targets), map(_port, ports.split(", ")))
    }


def _endpoints(names: str) -> list[Endpoint]:
    each = {endpoint.name: [endpoint] for endpoint in (*OURS, *OTHERS)} | GROUPS
    return [endpoint for name in names.split(", ") for endpoint in each[name if name in GROUPS else name.lower()]]


def _port(text: str) -> Port:
    number, _, protocol = text.partition("/")
    return Port(int(number), protocol or "TCP")

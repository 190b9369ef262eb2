"""Which connections NetworkPolicies allow, as the Kubernetes documentation defines it.

A pod that no policy selects is open. Otherwise it is open to what any of them allows, and to nothing else; incoming and
outgoing connections apart. A connection has to be allowed at both of its ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Literal, NamedTuple

from tests.system.deploy.forms import Manifest, selects

Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod, or, without a namespace, a host, which policies know by its address."""

    name: str
    namespace: str | None = None
    address: str = "198.51.100.1"
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)


class Port(NamedTuple):
    """Of the pod that is called, not of a Service."""

    number: int
    protocol: str = "TCP"


def allows(manifests: list[Manifest], source: Endpoint, target: Endpoint, port: Port) -> bool:
    """Whether `source` may open a connection to `target`."""
    policies = [manifest for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
    return _open("Egress", policies, source, target, port) and _open("Ingress", policies, target, source, port)


def _open(direction: Direction, policies: list[Manifest], pod: Endpoint, other: Endpoint, port: Port) -> bool:
    isolating = [policy for policy in policies if _isolates(policy, direction, pod)]
    return not isolating or any(
        _names(rule.get("from" if direction == "Ingress" else "to", []), policy["metadata"]["namespace"], other)
        and _opens(rule.get("ports", []), port)
        for policy in isolating
        for rule in policy["spec"].get(direction.lower(), [])
    )


def _isolates(policy: Manifest, direction: Direction, pod: Endpoint) -> bool:
    spec = policy["spec"]
    directions = spec.get("policyTypes", ["Ingress", "Egress"] if "egress" in spec else ["Ingress"])
    in_namespace = policy["metadata"]["namespace"] == pod.namespace
    return in_namespace and direction in directions and selects(spec["podSelector"], pod.labels)


def _names(peers: list[Manifest], namespace: str, other: Endpoint) -> bool:
    """No peer at all means everybody."""
    return not peers or any(_is(peer, namespace, other) for peer in peers)


def _is(peer: Manifest, namespace: str, other: Endpoint) -> bool:
    """`namespace`: the policy's, which is meant where the peer does not speak of namespaces."""
    if other.namespace is None:
        return "ipBlock" in peer and ip_address(other.address) in ip_network(peer["ipBlock"]["cidr"])
    if "ipBlock" in peer:  # whether it holds for pods is up to the network plugin
        return False
    if "namespaceSelector" in peer:
        there = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        there = other.namespace == namespace
    return there and selects(peer.get("podSelector", {}), other.labels)


def _opens(ports: list[Manifest], port: Port) -> bool:
    """No port at all means every port."""
    assert all(entry.keys() <= {"protocol", "port"} for entry in ports), "ranges are not used here"
    return not ports or any(port == Port(entry["port"], entry.get("protocol", "TCP")) for entry in ports)

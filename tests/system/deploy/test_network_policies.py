"""Every form allows the connections that docs/architecture.md lists; the network policies allow no other."""

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.system.deploy.connections import APP, OTHERS, OURS, Connection, documented
from tests.system.deploy.forms import COMPONENTS, FORMS, Manifest, containers, named
from tests.system.deploy.network_policies import Endpoint, Port, allows

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
PRODUCTION = "deploy/k8s/overlays/production"
DOCUMENTED = documented()


def allowed(manifests: list[Manifest]) -> set[Connection]:
    """Of all connections from, to and between our pods, at each port that is named anywhere, and at one that is not."""
    pairs = [pair for pair in product([*OURS, *OTHERS], repeat=2) if pair[0] is not pair[1] and set(pair) & set(OURS)]
    listening = {port["containerPort"] for container in containers(manifests) for port in container.get("ports", [])}
    numbers = sorted({connection.port.number for connection in DOCUMENTED} | listening | _named_ports(manifests) | {1})
    ports = [Port(number, protocol) for number in numbers for protocol in ("TCP", "UDP")]
    connections = (Connection(source, target, port) for (source, target), port in product(pairs, ports))
    return {connection for connection in connections if allows(manifests, *connection)}


def _named_ports(manifests: list[Manifest]) -> set[int]:
    policies = [manifest["spec"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
    rules = [rule for spec in policies for rule in [*spec.get("ingress", []), *spec.get("egress", [])]]
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_our_pods_are_those_of_the_manifests(render: Render) -> None:
    labels = [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in render(PRODUCTION)
        if manifest["kind"] in ("Deployment", "StatefulSet")
    ]
    assert sorted(label[APP] for label in labels) == sorted(pod.labels[APP] for pod in OURS if pod.labels)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_allows_what_the_architecture_needs(render: Render, form: str) -> None:
    assert DOCUMENTED - allowed(render(form)) == set()


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_component_alone_cuts_the_services_off(render_with: Render, component: str) -> None:
    assert DOCUMENTED - allowed(render_with(component)) == set()


def test_production_allows_nothing_else(render: Render) -> None:
    assert allowed(render(PRODUCTION)) - DOCUMENTED == set()


def test_network_policy_alone_allows_nothing_else(render_with: Render) -> None:
    assert allowed(render_with("network-policy")) - DOCUMENTED == set()


def _close_port(manifests: list[Manifest]) -> None:
    named(manifests, "NetworkPolicy", "fairlead-gateway")["spec"]["ingress"][0]["ports"][0]["port"] = 2


def _open_peer(manifests: list[Manifest]) -> None:
    del named(manifests, "NetworkPolicy", "fairlead-worker")["spec"]["ingress"][0]["from"]


def _drop_default(manifests: list[Manifest]) -> None:
    manifests.remove(named(manifests, "NetworkPolicy", "fairlead-deny"))


def _move_away(manifests: list[Manifest]) -> None:
    named(manifests, "NetworkPolicy", "fairlead-scheduler")["metadata"]["namespace"] = "default"


@pytest.mark.parametrize("damage", [_close_port, _open_peer, _drop_default, _move_away])
def test_each_damage_to_the_policies_shows(render: Render, damage: Callable[[list[Manifest]], None]) -> None:
    manifests = copy.deepcopy(render(PRODUCTION))
    damage(manifests)
    assert allowed(manifests) != DOCUMENTED


def policy(namespace: str = "n", **spec: Any) -> Manifest:
    return {"kind": "NetworkPolicy", "metadata": {"namespace": namespace}, "spec": {"podSelector": {}, **spec}}


A, B = (Endpoint(name, "n", labels={"app": name}) for name in "ab")
AWAY = Endpoint("a", "m", labels={"app": "a"})
TO_A: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "a"}}}
IN_M = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "m"}}}
ONE = Port(1)


def test_a_pod_that_no_policy_selects_is_open() -> None:
    assert allows([], A, B, ONE)
    assert allows([policy(**TO_A)], A, B, ONE), "that policy is about what comes to a"
    assert allows([policy(namespace="m")], A, B, ONE), "that one is about another namespace"


def test_a_policy_without_rules_closes_its_directions() -> None:
    assert not allows([policy(**TO_A)], B, A, ONE)
    assert not allows([policy(policyTypes=["Egress"], **TO_A)], A, B, ONE)
    assert allows([policy(policyTypes=["Egress"], **TO_A)], B, A, ONE)
    assert not allows([policy(egress=[{"ports": [{"port": 2}]}], **TO_A)], A, B, ONE), (
        "egress rules imply the direction"
    )


def test_policies_add_up_and_both_ends_count() -> None:
    opened = policy(ingress=[{"from": [TO_A], "ports": [{"port": 1}]}])
    assert allows([policy(), opened], A, B, ONE)
    assert not allows([policy(), opened], A, B, Port(2))
    assert not allows([policy(), opened], A, B, Port(1, "UDP"))
    assert not allows([policy(policyTypes=["Egress"]), opened], A, B, ONE)


def test_a_peer_is_of_the_policys_namespace_unless_it_names_one() -> None:
    def from_peers(*peers: Manifest) -> list[Manifest]:
        return [policy(ingress=[{"from": list(peers)}])]

    assert not allows(from_peers(TO_A), AWAY, B, ONE)
    assert allows(from_peers({**TO_A, **IN_M}), AWAY, B, ONE)
    assert not allows(from_peers({**TO_A, **IN_M}), A, B, ONE), "one peer: both must hold"
    assert allows(from_peers(TO_A, IN_M), A, B, ONE), "two peers: either"
    assert not allows(from_peers({"namespaceSelector": {}}), Endpoint("host"), B, ONE), "a host is in no namespace"
    assert allows([policy(ingress=[{}])], Endpoint("host"), B, ONE), "no peer means everybody"


def test_a_host_is_known_by_its_address() -> None:
    policies = [policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])]
    assert allows(policies, Endpoint("host", address="10.1.2.3"), B, ONE)
    assert not allows(policies, Endpoint("host", address="11.1.2.3"), B, ONE)
    assert not allows(policies, A, B, ONE)

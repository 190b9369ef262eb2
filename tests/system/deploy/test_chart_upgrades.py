"""The second day of a release: upgrades, of which none changes what running workers start with, and renames."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.deploy.api_server import ApiServer, Key, served
from tests.system.deploy.chart import Refused, Values
from tests.system.deploy.forms import Manifest, config_maps, containers
from tests.system.deploy.release import Release

pytestmark = pytest.mark.slow


@pytest.fixture
def release(programs: Path, tmp_path: Path) -> Iterator[Release]:
    server = ApiServer()
    with served(server, tmp_path) as kubeconfig:
        yield Release(programs / "helm", server, kubeconfig)


def pool(**pool: Any) -> Values:
    return {"pools": [{"name": "chat", "model": "a/model", **pool}]}


def settings_of(manifests: list[Manifest], workload: str) -> dict[str, str]:
    """What a pod of the workload that starts now is told; fails if its ConfigMap is not there."""
    [pods] = [m for m in manifests if m["metadata"]["name"] == workload and "template" in m.get("spec", {})]
    [container] = containers([pods])
    [source] = container["envFrom"]
    return config_maps(manifests)[source["configMapRef"]["name"]]


VALUES: dict[str, Values] = {
    "plain": pool(),
    "a volume": pool(storage="10Gi"),
    "a volume of a class": pool(storage="10Gi", storageClass="fast"),
    "gpu": pool(gpus=1),
    "two nodes": pool(engine="vllm", gpus=8, nodes=2),
    "operated": {
        **pool(settings={"MAX_RUNNING": 8}, autoscaling={"min": 2, "max": 8}),
        "drainSeconds": 300,
        "monitoring": True,
        "networkPolicy": True,
        "priority": True,
        "gateway": {"autoscaling": {"min": 2, "max": 4}},
    },
}
REFUSALS = ("the volumes of running workers cannot be changed", "has the only running workers of a/model")


@pytest.mark.parametrize("before", VALUES)
def test_an_upgrade_succeeds_or_is_refused_before_it_changes_anything(release: Release, before: str) -> None:
    release.install(VALUES[before])
    installed = copy.deepcopy(release.server.objects)
    outcomes = {after: outcome(release, VALUES[after], installed) for after in VALUES}
    assert [text for text in outcomes.values() if text and not any(reason in text for reason in REFUSALS)] == []
    assert outcomes[before] == ""
    if before != "two nodes":
        assert outcomes["two nodes"], "pods of another kind, which begin when the others are gone"


def outcome(release: Release, values: Values, installed: dict[Key, Manifest]) -> str:
    """Why the upgrade is refused, after which nothing is changed; empty if it succeeds."""
    release.server.objects = copy.deepcopy(installed)
    before = release.server.manifests()
    try:
        release.upgrade(values)
    except Refused as refused:
        return str(refused) if release.server.manifests() == before else f"half of it is done: {refused}"
    return ""


def test_workers_keep_their_settings_until_they_are_rolled_and_a_rollback_finds_them(release: Release) -> None:
    before = settings_of(release.install(pool()), "fairlead-chat")
    manifests = release.upgrade(pool(model="b/model"))
    assert settings_of(manifests, "fairlead-chat")["FAIRLEAD_WORKER_MODEL"] == "b/model"
    assert before in config_maps(manifests).values(), "for pods of the old template"
    assert settings_of(release.rollback(1), "fairlead-chat") == before


def test_a_change_that_the_cluster_refuses_half_way_leaves_workers_their_settings(release: Release) -> None:
    """A StatefulSet that somebody made anew by hand with other fields: the chart cannot see all of them."""
    release.install(pool())
    release.server.named("statefulsets", "fairlead-chat")["spec"]["podManagementPolicy"] = "OrderedReady"
    with pytest.raises(Refused, match="Forbidden: updates"):
        release.upgrade(pool(model="b/model"))
    told = settings_of(release.server.manifests(), "fairlead-chat")
    assert told["FAIRLEAD_WORKER_MODEL"] == "a/model"


@pytest.mark.parametrize("later", [pool(), pool(autoscaling={"min": 2, "max": 8})], ids=["nobody", "an autoscaler"])
def test_the_number_of_workers_stays_when_the_values_do_not_name_it_any_more(release: Release, later: Values) -> None:
    release.install(pool(replicas=4))
    release.upgrade(later)
    assert release.replicas("chat") == 4
    release.scale("chat", 6)
    release.upgrade({**later, "drainSeconds": 60})
    assert release.replicas("chat") == 6
    release.upgrade(pool(replicas=3))
    assert release.replicas("chat") == 3


def test_the_number_of_gateways_stays_too(release: Release) -> None:
    release.install({"gateway": {"replicas": 3}})
    release.upgrade({"gateway": {"autoscaling": {"min": 2, "max": 5}}})
    assert release.server.named("deployments", "fairlead-gateway")["spec"]["replicas"] == 3


def test_a_pool_is_renamed_by_adding_waiting_and_removing(release: Release) -> None:
    old, new = ({"name": name, "model": "a/model"} for name in ("old", "new"))
    first = release.install({"pools": [old]})
    with pytest.raises(Refused, match="fairlead-old has the only running workers of a/model"):
        release.upgrade({"pools": [new]})
    assert release.server.manifests() == first
    release.upgrade({"pools": [old, new]})
    with pytest.raises(Refused, match="whose other pool does not serve yet"):
        release.upgrade({"pools": [new]})
    release.serve("new")
    manifests = release.upgrade({"pools": [new]})
    assert {m["metadata"]["name"] for m in manifests if m["kind"] == "StatefulSet"} == {
        "fairlead-scheduler", "fairlead-new",
    }  # fmt: skip


def test_a_model_that_nobody_is_to_serve_any_more_can_be_removed(release: Release) -> None:
    pools = [{"name": "one", "model": "a/model"}, {"name": "two", "model": "b/model"}]
    release.install({"pools": pools})
    names = {m["metadata"]["name"] for m in release.upgrade({"pools": pools[:1]}) if m["kind"] == "StatefulSet"}
    assert names == {"fairlead-scheduler", "fairlead-one"}


def test_pools_of_another_release_in_the_namespace_are_none_of_ours(release: Release) -> None:
    release.install(pool())
    other = release.server.named("statefulsets", "fairlead-chat")
    release.server.objects["statefulsets", "fairlead", "other-old"] = {
        **other,
        "metadata": {**other["metadata"], "name": "other-old", "labels": {"fairlead-release": "other"}},
    }
    assert release.upgrade({**pool(), "drainSeconds": 30})

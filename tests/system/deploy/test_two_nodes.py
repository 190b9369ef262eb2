"""The LeaderWorkerSet, whose schema Kubernetes does not carry: its pods are valid, and fit each other."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from local_worker.config import WorkerConfig
from local_worker.engine.vllm.environment import read_arguments
from serving.config import load
from serving.environment import ServiceName
from tests.system.deploy import kubelet
from tests.system.deploy.forms import TWO_NODES, Manifest, config_maps, named
from tests.system.deploy.schema_validator import SchemaValidator
from tests.system.deploy.test_services import FIELDS, SECRETS

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]


@pytest.fixture
def pods(render: Render) -> dict[str, Manifest]:
    """The templates of the first pod of a group and of those that follow."""
    group = named(render(TWO_NODES), "LeaderWorkerSet", "fairlead-worker")["spec"]["leaderWorkerTemplate"]
    return {name: group[f"{name}Template"] for name in ("leader", "worker")}


def as_pod_template(name: str, template: Manifest) -> Manifest:
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}


def test_schemas_accept_the_pods(render: Render, pods: dict[str, Manifest], schema_validator: SchemaValidator) -> None:
    others = [manifest for manifest in render(TWO_NODES) if manifest["kind"] != "LeaderWorkerSet"]
    assert not [manifest for manifest in others if manifest["kind"] == "StatefulSet" and "worker" in str(manifest)]
    templates = [as_pod_template(name, template) for name, template in pods.items()]
    assert schema_validator.problems([*others, *templates], "1.37") == []
    damaged = deepcopy(templates)
    damaged[1]["template"]["spec"]["containers"][0]["nonsense"] = True
    assert schema_validator.problems(damaged, "1.37")


def test_both_pods_are_told_the_same_but_their_rank(render: Render, pods: dict[str, Manifest]) -> None:
    manifests, told = render(TWO_NODES), []
    for rank, pod in enumerate(pods.values()):
        [container] = pod["spec"]["containers"]
        values = kubelet.environment(container, config_maps(manifests), SECRETS, FIELDS)
        values |= {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(rank), "LWS_LEADER_ADDRESS": "fairlead-worker-0"}
        python, dash_m, module, *arguments = kubelet.command_line(container, values)
        assert (python, dash_m, module) == ("python", "-m", "local_worker")
        config = load(WorkerConfig, ServiceName.WORKER, arguments, values, prog=module)
        told.append(dict(read_arguments(config.vllm_args)))
        assert told[-1]["tensor_parallel_size"] == 2 * int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert [arguments.pop("node_rank") for arguments in told] == [0, 1]
    assert told[0] == told[1]
    assert told[0]["nnodes"] == 2

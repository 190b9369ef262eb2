"""Several pools of workers in one release of the chart: each has a model of its own."""

import json

import pytest
import yaml

from engine_adapter.config import AdapterConfig
from local_worker.config import WorkerConfig
from serving.config import load
from serving.environment import ServiceName
from tests.system.deploy import kubelet
from tests.system.deploy.chart import Chart, Refused, settings
from tests.system.deploy.chart_values import EVERYTHING, GIVEN, POOLS
from tests.system.deploy.connections import APP
from tests.system.deploy.forms import NAMESPACE, config_maps, named, pod_templates
from tests.system.deploy.network_policies import Endpoint, Port, allows
from tests.system.deploy.test_services import FIELDS, SECRETS
from tests.system.deploy.wiring import misfits

pytestmark = pytest.mark.slow


def test_several_pools_fit_each_other(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    assert misfits(manifests, given=GIVEN) == []
    pools = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "StatefulSet"}
    assert pools.keys() == {f"fairlead-{name}" for name in ("scheduler", "small", "own", "large", "beside")}
    for name in ("small", "own", "large", "beside"):
        [template] = pod_templates(pools[f"fairlead-{name}"])
        budget = named(manifests, "PodDisruptionBudget", f"fairlead-{name}")["spec"]["selector"]
        assert pools[f"fairlead-{name}"]["spec"]["selector"] == budget, "a budget for the pool's own pods"
        assert budget["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "fairlead-worker", "one policy for all"


def test_each_pool_is_told_its_own_model_and_settings(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    told = {}
    for pool in POOLS[:3]:
        [template] = pod_templates(named(manifests, "StatefulSet", f"fairlead-{pool['name']}"))
        [container] = template["spec"]["containers"]
        values = kubelet.environment(container, config_maps(manifests), SECRETS, FIELDS)
        _, _, module, *arguments = kubelet.command_line(container, values)
        told[pool["name"]] = load(WorkerConfig, ServiceName.WORKER, arguments, values, prog=module)
    assert {name: config.model for name, config in told.items()} == {pool["name"]: pool["model"] for pool in POOLS[:3]}
    assert [config.engine for config in told.values()] == ["transformers", "transformers", "vllm"]
    assert told["own"].max_running == 16
    assert "pipeline_parallel_size: 2" in told["large"].vllm_args


def test_an_adapter_and_its_engine_are_told_the_same(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    [pod] = [template["spec"] for template in pod_templates(named(manifests, "StatefulSet", "fairlead-beside"))]
    [engine], [adapter] = pod["initContainers"], pod["containers"]
    assert (engine["image"], engine["command"]) == ("registry.test/vllm:1", ["vllm", "serve", "/weights/beside"])
    assert {"--max-num-seqs=64", "--tensor-parallel-size=2", "--served-model-name=beside"} <= {*engine["args"]}
    assert {"name": "weights", "mountPath": "/weights", "readOnly": True} in engine["volumeMounts"]
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in adapter["resources"]["limits"]
    values = kubelet.environment(adapter, config_maps(manifests), SECRETS, FIELDS)
    _, _, module, *arguments = kubelet.command_line(adapter, values)
    config = load(AdapterConfig, ServiceName.ADAPTER, arguments, values, prog=module)
    [told] = [json.loads(text.partition("=")[2]) for text in engine["args"] if text.startswith("--kv-events-config")]
    assert config.kv_event_addresses == [told["endpoint"], told["replay_endpoint"]]
    assert f"--port={config.engine.rpartition(':')[2]}" in engine["args"]
    assert (config.max_running, config.drain_seconds) == (64, 300)
    assert f"--max-num-batched-tokens={config.token_budget}" in engine["args"]


def test_an_adapter_needs_the_sidecars_of_later_versions(chart: Chart) -> None:
    pools = {"pools": [{"name": "beside", "model": "a/model", "engine": "adapter", "gpus": 1}]}
    with pytest.raises(Refused, match=r"pool beside: .* needs the sidecars of Kubernetes 1\.29, not v1\.28"):
        chart(pools, kubernetes="1.28")
    assert chart(pools, kubernetes="1.29")


def test_a_model_over_several_nodes_is_a_group_whose_pods_reach_each_other(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    group = named(manifests, "LeaderWorkerSet", "fairlead-wide")["spec"]["leaderWorkerTemplate"]
    leader, ranks = (group[f"{name}Template"] for name in ("leader", "worker"))
    assert group["size"] == 3
    for template in (leader, ranks):
        [container] = template["spec"]["containers"]
        told = yaml.safe_load(container["args"][-1].replace("$(", "").replace(")", ""))
        assert (told["tensor_parallel_size"], container["resources"]["limits"]["nvidia.com/gpu"]) == (24, "8")
    scaler = named(manifests, "HorizontalPodAutoscaler", "fairlead-wide")["spec"]["scaleTargetRef"]
    assert (scaler["kind"], scaler["apiVersion"]) == ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")
    [apart] = pod_templates(named(manifests, "StatefulSet", "fairlead-own"))
    first, following, other = (
        Endpoint(template["metadata"]["labels"][APP], NAMESPACE, labels=template["metadata"]["labels"])
        for template in (leader, ranks, apart)
    )
    any_port = Port(29500)
    assert allows(manifests, first, following, any_port)
    assert allows(manifests, following, first, any_port)
    assert not allows(manifests, other, following, any_port)
    assert not allows(manifests, first, other, any_port)


def test_weights_come_from_a_claim_or_from_a_download(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    pools = [named(manifests, "StatefulSet", f"fairlead-{name}") for name in ("own", "large")]
    [own, large] = [template["spec"] for pool in pools for template in pod_templates(pool)]
    claim = {"claimName": "own-weights", "readOnly": True}
    assert {"name": "weights", "persistentVolumeClaim": claim} in own["volumes"]
    assert {"name": "weights", "mountPath": "/weights", "readOnly": True} in own["containers"][0]["volumeMounts"]
    [download] = large["initContainers"]
    assert download["command"] == ["sh", "-c", "true"]
    shared = {"name": "cache", "mountPath": "/var/cache/fairlead"}
    assert shared in download["volumeMounts"]
    assert shared in large["containers"][0]["volumeMounts"]


def test_a_pool_drains_as_long_as_its_answers_take_and_gateways_as_long_as_the_slowest(chart: Chart) -> None:
    pools = [{"name": "quick", "model": "a/quick"}, {"name": "slow", "model": "a/slow", "drainSeconds": 600}]
    manifests = chart({"pools": pools, "drainSeconds": 60})
    seconds = {
        m["metadata"]["name"]: template["spec"]["terminationGracePeriodSeconds"]
        for m in manifests
        for template in pod_templates(m)
    }
    assert (seconds["fairlead-quick"], seconds["fairlead-slow"], seconds["fairlead-gateway"]) == (70, 610, 615)
    told = settings(manifests)
    assert told["fairlead-slow"]["FAIRLEAD_WORKER_DRAIN_SECONDS"] == "600"
    assert told["fairlead-gateway"]["FAIRLEAD_GATEWAY_DRAIN_SECONDS"] == "600"

"""The Helm chart installs what kustomize's forms install, and several pools of workers beside."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from local_worker.config import WorkerConfig
from serving.config import load
from serving.environment import ServiceName
from tests.deploy import kubelet
from tests.deploy.chart import Chart, Refused, Values, comparable
from tests.deploy.forms import OPERATORS_SECRETS, ROOT, Manifest, config_maps, named, operators_secrets, pod_templates
from tests.deploy.test_services import FIELDS, SECRETS
from tests.deploy.wiring import misfits

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]


def worker(**pool: Any) -> list[Values]:
    return [{"name": "worker", "model": "Qwen/Qwen3-8B", "gpus": 1, **pool}]


BUILT_IN = {"model": "smollm2-135m-instruct", "gpus": 0}
LONG_ANSWERS = {"drainSeconds": 300, "monitoring": True}
FORMS: dict[str, Values] = {
    "base": {},
    "overlays/cpu": {"monitoring": True},
    "overlays/gpu": {**LONG_ANSWERS, "pools": worker()},
    "overlays/vllm": {**LONG_ANSWERS, "pools": worker(engine="vllm")},
    "overlays/vllm-tensor-parallel": {
        **LONG_ANSWERS,
        "pools": worker(engine="vllm", model="Qwen/Qwen3-32B", gpus=4),
    },
    "overlays/production": {
        **LONG_ANSWERS,
        "tls": "fairlead-tls",
        "networkPolicy": True,
        "tracing": "http://otel-collector.observability:4317",
        "gateway": {"autoscaling": {"min": 2, "max": 10}},
        "pools": worker(**BUILT_IN, autoscaling={"min": 2, "max": 8}),
    },
}
COMPONENTS: dict[str, Values] = {
    "prometheus-operator": {"monitoring": True, "prometheusOperator": True},
    "http-route": {"httpRoute": {"host": "llm.example.com"}},
    "grpc-route": {"grpcRoute": {"host": "grpc.llm.example.com"}},
    "ingress": {
        "ingress": {
            "host": "llm.example.com",
            "annotations": {
                "nginx.ingress.kubernetes.io/proxy-buffering": "off",
                "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
                "nginx.ingress.kubernetes.io/proxy-body-size": "4m",
                "nginx.ingress.kubernetes.io/upstream-hash-by": "$http_authorization$http_x_api_key$remote_addr",
            },
        }
    },
}
POOLS: list[Values] = [
    {"name": "small", "model": "smollm2-135m-instruct", "replicas": 2},
    {"name": "own", "model": "/weights/own", "weights": {"claim": "own-weights"}, "settings": {"MAX_RUNNING": 16}},
    {
        "name": "large",
        "model": "/var/cache/fairlead/qwen",
        "engine": "vllm",
        "gpus": 4,
        "storageClass": "fast",
        "nodeSelector": {"gpu": "h100"},
        "settings": {"VLLM_ARGS": "{tensor_parallel_size: 2, pipeline_parallel_size: 2}"},
        "autoscaling": {"min": 1, "max": 4},
        "weights": {"download": {"image": "docker.io/library/busybox:1.37", "command": ["sh", "-c", "true"]}},
    },
]
EVERYTHING: Values = {
    **FORMS["overlays/production"],
    **COMPONENTS["ingress"],
    **COMPONENTS["http-route"],
    "pools": POOLS,
}


@pytest.mark.parametrize("form", FORMS)
def test_it_installs_what_the_form_installs(render: Render, chart: Chart, form: str) -> None:
    assert comparable(chart(FORMS[form])) == comparable(render(f"deploy/k8s/{form}"))


@pytest.mark.parametrize("component", COMPONENTS)
def test_it_installs_what_the_component_adds(render_with: Render, chart: Chart, component: str) -> None:
    assert comparable(chart(COMPONENTS[component])) == comparable(render_with(component))


def test_the_comparison_can_fail(render: Render, chart: Chart) -> None:
    for damage in ("image", "resources", "args", "envFrom"):
        manifests = copy.deepcopy(chart({}))
        del named(manifests, "StatefulSet", "fairlead-worker")["spec"]["template"]["spec"]["containers"][0][damage]
        assert comparable(manifests) != comparable(render("deploy/k8s/base"))


def test_several_pools_fit_each_other(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    given = operators_secrets("production") | {("PersistentVolumeClaim", "own-weights")}
    assert misfits(manifests, given=given) == []
    pools = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "StatefulSet"}
    assert pools.keys() == {"fairlead-scheduler", "fairlead-small", "fairlead-own", "fairlead-large"}
    for name in ("small", "own", "large"):
        [template] = pod_templates(pools[f"fairlead-{name}"])
        budget = named(manifests, "PodDisruptionBudget", f"fairlead-{name}")["spec"]["selector"]
        assert pools[f"fairlead-{name}"]["spec"]["selector"] == budget, "a budget for the pool's own pods"
        assert budget["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "fairlead-worker", "one policy for all"


def test_each_pool_is_told_its_own_model_and_settings(chart: Chart) -> None:
    manifests = chart(EVERYTHING)
    told = {}
    for pool in POOLS:
        [template] = pod_templates(named(manifests, "StatefulSet", f"fairlead-{pool['name']}"))
        [container] = template["spec"]["containers"]
        values = kubelet.environment(container, config_maps(manifests), SECRETS, FIELDS)
        _, _, module, *arguments = kubelet.command_line(container, values)
        told[pool["name"]] = load(WorkerConfig, ServiceName.WORKER, arguments, values, prog=module)
    assert {name: config.model for name, config in told.items()} == {pool["name"]: pool["model"] for pool in POOLS}
    assert [config.engine for config in told.values()] == ["transformers", "transformers", "vllm"]
    assert told["own"].max_running == 16
    assert "pipeline_parallel_size: 2" in told["large"].vllm_args


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


def test_another_release_in_another_namespace_has_names_of_its_own(chart: Chart) -> None:
    manifests = chart({"networkPolicy": True, "monitoring": True}, release="chat", namespace="llm")
    assert misfits(manifests, given=OPERATORS_SECRETS, namespace="llm") == []
    assert all(manifest["metadata"]["name"].startswith("chat-") for manifest in manifests)
    assert "chat-scheduler-0.chat-schedulers:7050" in str(named(manifests, "Deployment", "chat-gateway"))


def test_a_redis_of_ones_own_replaces_ours(chart: Chart) -> None:
    url, password = "rediss://redis.example.com:6380", {"secret": "redis", "key": "password"}
    manifests = chart({"redis": {"url": url, "password": password}, "networkPolicy": True})
    assert misfits(manifests, given=OPERATORS_SECRETS | {("Secret", "redis")}) == []
    assert not [m for m in manifests if m["metadata"]["name"] == "fairlead-redis"]
    assert url in str(named(manifests, "StatefulSet", "fairlead-scheduler"))
    to_redis = {"ports": [{"protocol": "TCP", "port": 6380}]}
    assert to_redis in named(manifests, "NetworkPolicy", "fairlead-scheduler")["spec"]["egress"]


def test_numbers_and_profiles_are_taken_as_they_are_written(chart: Chart) -> None:
    gateway = {"replicas": 3, "most": 3, "settings": {"USER_PER_MINUTE": 1000000}, "profiles": {"tiers": {"gold": 9}}}
    manifests = chart({"gateway": {**gateway, "http": False}, "images": {"registry": "registry.test", "tag": "9"}})
    settings = config_maps(manifests)["fairlead-gateway"]
    assert (settings["FAIRLEAD_GATEWAY_USER_PER_MINUTE"], settings["FAIRLEAD_GATEWAY_GATEWAYS"]) == ("1000000", "3")
    assert config_maps(manifests)["fairlead-profiles"] == {"profiles.yaml": "tiers:\n  gold: 9\n"}
    deployment = named(manifests, "Deployment", "fairlead-gateway")["spec"]
    assert deployment["replicas"] == 3
    [container] = deployment["template"]["spec"]["containers"]
    assert container["image"] == "registry.test/control-plane:9"
    assert [port["name"] for port in container["ports"]] == ["grpc"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"monitorin": True}, "monitorin"),
        ({"pools": []}, "minItems"),
        ({"pools": worker(gpu=1)}, "additional properties 'gpu' not allowed"),
        ({"pools": [*worker(), *worker()]}, "pools: two of them have the name worker"),
        ({"pools": worker(name="gateway")}, "/pools/0/name"),
        ({"pools": worker(engine="vllm", gpus=0)}, "pool worker: the engine vllm needs gpus"),
        ({"pools": worker(gpus=2)}, "pool worker: only the engine vllm splits a model over 2 gpus"),
        ({"pools": worker(resources={"limits": {"cpu": 8}})}, "their limits must name nvidia.com/gpu"),
        ({"prometheusOperator": True}, "prometheusOperator: needs monitoring"),
        ({"gateway": {"http": False}, "httpRoute": {"host": "a.b"}}, "there is no HTTP port without gateway.http"),
    ],
)
def test_values_that_cannot_work_are_refused(chart: Chart, values: Values, message: str) -> None:
    with pytest.raises(Refused) as refused:
        chart(values)
    assert message in str(refused.value)


def test_a_pool_drains_as_long_as_its_answers_take_and_gateways_as_long_as_the_slowest(chart: Chart) -> None:
    pools = [{"name": "quick", "model": "a/quick"}, {"name": "slow", "model": "a/slow", "drainSeconds": 600}]
    manifests = chart({"pools": pools, "drainSeconds": 60})
    seconds = {
        m["metadata"]["name"]: template["spec"]["terminationGracePeriodSeconds"]
        for m in manifests
        for template in pod_templates(m)
    }
    assert (seconds["fairlead-quick"], seconds["fairlead-slow"], seconds["fairlead-gateway"]) == (70, 610, 615)
    settings = config_maps(manifests)
    assert settings["fairlead-slow"]["FAIRLEAD_WORKER_DRAIN_SECONDS"] == "600"
    assert settings["fairlead-gateway"]["FAIRLEAD_GATEWAY_DRAIN_SECONDS"] == "600"


def test_the_notes_name_every_secret_that_the_operator_makes(chart: Chart) -> None:
    notes = chart.notes({"tls": "my-certificate"})
    assert [name for name in ("fairlead-cluster", "fairlead-keys", "my-certificate") if name not in notes] == []
    assert "my-certificate" not in chart.notes({})


def test_the_values_of_the_readme_fit(chart: Chart) -> None:
    text = (ROOT / "deploy/README.md").read_text().partition("### Helm")[2]
    manifests = chart(yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0]))
    assert misfits(manifests, given=operators_secrets("production") | {("PersistentVolumeClaim", "own-weights")}) == []
    assert len([m for m in manifests if m["kind"] == "StatefulSet"]) == 4


def test_helm_finds_nothing_to_say(chart: Chart) -> None:
    chart.lint(EVERYTHING)

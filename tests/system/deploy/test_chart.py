"""The Helm chart installs what kustomize's forms install; its values do what they say."""

import copy
import re
from collections.abc import Callable

import pytest
import yaml

from tests.system.deploy.chart import Chart, Refused, Values, comparable, settings
from tests.system.deploy.chart_values import COMPONENTS, EVERYTHING, FORMS, GIVEN, worker
from tests.system.deploy.forms import OPERATORS_SECRETS, ROOT, Manifest, named, pod_templates
from tests.system.deploy.wiring import misfits

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]


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


def test_images_can_be_exactly_those_of_a_digest(chart: Chart) -> None:
    digest = f"sha256:{'0' * 64}"
    manifests = chart({"images": {"registry": "registry.test", "digests": {"worker": digest}}})
    [worker] = pod_templates(named(manifests, "StatefulSet", "fairlead-worker"))
    assert worker["spec"]["containers"][0]["image"] == f"registry.test/worker@{digest}"
    [gateway] = pod_templates(named(manifests, "Deployment", "fairlead-gateway"))
    assert re.fullmatch(r"registry\.test/control-plane:\d+\.\d+\.\d+", gateway["spec"]["containers"][0]["image"])


def test_another_release_in_another_namespace_has_names_of_its_own(chart: Chart) -> None:
    manifests = chart({"networkPolicy": True, "monitoring": True}, release="chat", namespace="llm")
    assert misfits(manifests, given=OPERATORS_SECRETS, namespace="llm") == []
    assert all(manifest["metadata"]["name"].startswith("chat-") for manifest in manifests)
    assert "chat-scheduler-0.chat-schedulers:7050" in str(named(manifests, "Deployment", "chat-gateway"))


@pytest.mark.parametrize("user", ["", "me@", "me:old@"])
def test_a_redis_of_ones_own_replaces_ours(chart: Chart, user: str) -> None:
    url, password = f"rediss://{user}redis.example.com:6380", {"secret": "redis", "key": "password"}
    manifests = chart({"redis": {"url": url, "password": password}, "networkPolicy": True})
    assert misfits(manifests, given=OPERATORS_SECRETS | {("Secret", "redis")}) == []
    assert not [m for m in manifests if m["metadata"]["name"] == "fairlead-redis"]
    scheduler = str(named(manifests, "StatefulSet", "fairlead-scheduler"))
    assert f"rediss://{user[:2].strip('@')}:$(REDIS_PASSWORD)@redis.example.com:6380" in scheduler
    to_redis = {"ports": [{"protocol": "TCP", "port": 6380}]}
    assert to_redis in named(manifests, "NetworkPolicy", "fairlead-scheduler")["spec"]["egress"]


def test_numbers_and_profiles_are_taken_as_they_are_written(chart: Chart) -> None:
    gateway = {"replicas": 3, "settings": {"MAX_STREAMS": 1000000}, "profiles": {"tiers": {"gold": 9}}}
    manifests = chart({"gateway": {**gateway, "http": False}, "images": {"registry": "registry.test", "tag": "9"}})
    told = settings(manifests)["fairlead-gateway"]
    assert told["FAIRLEAD_GATEWAY_MAX_STREAMS"] == "1000000"
    assert settings(manifests)["fairlead-profiles"] == {"profiles.yaml": "tiers:\n  gold: 9\n"}
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
        ({"pools": worker(gpus=2)}, "pool worker: only vLLM splits a model over 2 gpus"),
        ({"pools": worker(engine="adapter", gpus=0)}, "pool worker: the engine adapter needs gpus"),
        ({"pools": worker(nodes=2)}, "pool worker: only the engine vllm splits a model over 2 nodes"),
        ({"pools": worker(serve={"args": ["--seed=1"]})}, "pool worker: serve is for the engine adapter"),
        ({"images": {"digests": {"worker": "latest"}}}, "/images/digests/worker"),
        ({"pools": worker(resources={"limits": {"cpu": 8}})}, "their limits must name nvidia.com/gpu"),
        ({"pools": worker(replicas=2, autoscaling={"min": 1, "max": 2})}, "pool worker: replicas would be set again"),
        ({"gateway": {"replicas": 2, "autoscaling": {"min": 1, "max": 2}}}, "gateway: replicas would be set again"),
        ({"prometheusOperator": True}, "prometheusOperator: needs monitoring"),
        ({"gateway": {"http": False}, "httpRoute": {"host": "a.b"}}, "there is no HTTP port without gateway.http"),
    ],
)
def test_values_that_cannot_work_are_refused(chart: Chart, values: Values, message: str) -> None:
    with pytest.raises(Refused) as refused:
        chart(values)
    assert message in str(refused.value)


def test_the_notes_name_every_secret_that_the_operator_makes(chart: Chart) -> None:
    notes = chart.notes({"tls": "my-certificate"})
    assert [name for name in ("fairlead-cluster", "fairlead-keys", "my-certificate") if name not in notes] == []
    assert "my-certificate" not in chart.notes({})


def test_the_values_of_the_readme_fit(chart: Chart) -> None:
    text = (ROOT / "deploy/README.md").read_text().partition("### Helm")[2]
    manifests = chart(yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0]))
    assert misfits(manifests, given=GIVEN) == []
    workloads = [m["metadata"]["name"] for m in manifests if m["kind"] in ("StatefulSet", "LeaderWorkerSet")]
    pools = ("small", "large", "own", "served", "wide")
    assert sorted(workloads) == sorted(f"fairlead-{name}" for name in ("scheduler", *pools))


def test_helm_finds_nothing_to_say(chart: Chart) -> None:
    chart.lint(EVERYTHING)

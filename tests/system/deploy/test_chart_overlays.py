"""What operators lay over the chart's objects, and the names and ports that follow from values."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.deploy.chart import Chart, Refused, Values
from tests.system.deploy.forms import OPERATORS_SECRETS, ROOT, Manifest, named, pod_templates
from tests.system.deploy.wiring import misfits

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
PLACED = {"nodeSelector": {"pool": "control"}, "schedulerName": "mine", "runtimeClassName": "nvidia"}


def pool(**pool: Any) -> Values:
    return {"pools": [{"name": "worker", "model": "a/model", **pool}]}


def template(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = pod_templates(named(manifests, kind, f"fairlead-{name}"))
    return found


@pytest.mark.parametrize(
    ("values", "kind", "name"),
    [
        ({"gateway": {"pod": {"spec": PLACED}}}, "Deployment", "gateway"),
        ({"scheduler": {"pod": {"spec": PLACED}}}, "StatefulSet", "scheduler"),
        ({"redis": {"pod": {"spec": PLACED}}}, "Deployment", "redis"),
        (pool(pod={"spec": PLACED}), "StatefulSet", "worker"),
    ],
    ids=["gateway", "scheduler", "redis", "pool"],
)
def test_pods_of_every_kind_have_what_is_laid_over_them(chart: Chart, values: Values, kind: str, name: str) -> None:
    manifests = chart(values)
    assert misfits(manifests, given=OPERATORS_SECRETS) == []
    spec = template(manifests, kind, name)["spec"]
    assert PLACED.items() <= spec.items()
    del spec["nodeSelector"], spec["schedulerName"], spec["runtimeClassName"]
    assert spec == template(chart(pool()), kind, name)["spec"], "and nothing else is changed"


def test_lists_are_merged_by_name_or_path_and_null_removes(chart: Chart) -> None:
    worker = {
        "name": "worker",
        "imagePullPolicy": "Always",
        "env": [
            {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
            {"name": "POD_IP", "value": "::1", "valueFrom": None},
        ],
        "volumeMounts": [{"mountPath": "/data", "name": "data"}, {"mountPath": "/tmp", "name": "data"}],
    }
    pod = {
        "metadata": {"annotations": {"team": "chat"}, "labels": {"cost": "7"}},
        "spec": {
            "containers": [worker, {"name": "proxy", "image": "registry.test/proxy:1"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "9Gi"}},
            ],
            "securityContext": {"runAsUser": None, "runAsGroup": None},
            "tolerations": [{"key": "mine", "operator": "Exists"}],
        },
    }
    found = template(chart(pool(gpus=1, pod=pod, settings={"MAX_RUNNING": 8})), "StatefulSet", "worker")
    plain = template(chart(pool(gpus=1, settings={"MAX_RUNNING": 8})), "StatefulSet", "worker")
    assert found["metadata"]["annotations"] == {"team": "chat"}
    assert found["metadata"]["labels"] == plain["metadata"]["labels"] | {"cost": "7"}
    first, second = found["spec"]["containers"]
    [before] = plain["spec"]["containers"]
    assert second == {"name": "proxy", "image": "registry.test/proxy:1"}
    variables, former = ({each["name"]: each for each in container["env"]} for container in (first, before))
    assert [*variables] == [*former, "HTTPS_PROXY"]
    assert variables["POD_IP"] == {"name": "POD_IP", "value": "::1"}
    assert {m["mountPath"]: m["name"] for m in first["volumeMounts"]} == {
        "/var/cache/fairlead": "cache", "/tmp": "data", "/data": "data",
    }  # fmt: skip
    assert first["args"] == before["args"]
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "9Gi"}} in found["spec"]["volumes"]
    context = plain["spec"]["securityContext"]
    kept = {key: value for key, value in context.items() if key not in ("runAsUser", "runAsGroup")}
    assert found["spec"]["securityContext"] == kept
    assert found["spec"]["tolerations"] == [{"key": "mine", "operator": "Exists"}]


def test_the_service_and_the_scalers_have_what_is_laid_over_them(chart: Chart) -> None:
    balancer = {"metadata": {"annotations": {"a/b": "c"}}, "spec": {"type": "LoadBalancer"}}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    scaled = {"min": 1, "max": 3, "spec": {"behavior": behavior}}
    manifests = chart({**pool(autoscaling=scaled), "gateway": {"service": balancer, "autoscaling": scaled}})
    service = named(manifests, "Service", "fairlead-gateway")
    assert service["metadata"]["annotations"] == {"a/b": "c"}
    assert (service["spec"]["type"], len(service["spec"]["ports"])) == ("LoadBalancer", 2)
    for name in ("gateway", "worker"):
        spec = named(manifests, "HorizontalPodAutoscaler", f"fairlead-{name}")["spec"]
        assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 60
        assert spec["metrics"]


def test_a_pool_can_be_scaled_by_keda(chart: Chart, render_with: Render) -> None:
    scaled = {"min": 2, "max": 8, "keda": "http://prometheus.monitoring:9090"}
    manifests = chart(pool(autoscaling=scaled))
    assert not [m for m in manifests if m["kind"] == "HorizontalPodAutoscaler"]
    found = named(manifests, "ScaledObject", "fairlead-worker")["spec"]
    example = named(render_with("autoscaling-keda"), "ScaledObject", "fairlead-worker")["spec"]
    for spec in (found, example):
        spec["scaleTargetRef"].pop("apiVersion", None)
        for trigger in spec["triggers"]:
            # Each pool is scaled by its own workers.
            trigger["metadata"]["query"] = trigger["metadata"]["query"].replace('{pod=~"fairlead-worker-[0-9]+"}', "")
        spec["triggers"].sort(key=str)
    assert found == example


def test_gpus_may_have_another_name(chart: Chart) -> None:
    part = "nvidia.com/mig-3g.40gb"
    spec = template(chart(pool(gpus=1, gpuResource=part)), "StatefulSet", "worker")["spec"]
    assert spec["containers"][0]["resources"]["limits"][part] == "1"
    assert spec["tolerations"] == [{"key": part, "operator": "Exists", "effect": "NoSchedule"}]
    assert "nvidia.com/gpu" not in str(spec)


def test_two_releases_of_one_name_share_no_object_of_the_cluster(chart: Chart) -> None:
    names = set()
    for namespace in ("fairlead", "other"):
        manifests = chart({"priority": True}, namespace=namespace)
        [priority] = [m["metadata"]["name"] for m in manifests if m["kind"] == "PriorityClass"]
        used = {t["spec"].get("priorityClassName") for m in manifests for t in pod_templates(m)}
        assert used == {None, priority}
        names.add(priority)
    assert len(names) == 2


def test_the_operators_objects_have_the_labels_that_a_prometheus_looks_for(chart: Chart) -> None:
    manifests = chart({"monitoring": True, "prometheusOperator": {"labels": {"release": "prometheus"}}})
    for kind, name in (("PodMonitor", "fairlead-metrics"), ("PrometheusRule", "fairlead-alerts")):
        labels = named(manifests, kind, name)["metadata"]["labels"]
        assert (labels["release"], labels["app.kubernetes.io/part-of"]) == ("prometheus", "fairlead")


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("redis://h", [6379]),
        ("redis://h:6380?protocol=3", [6380]),
        ("rediss://user:pa55:@h:6380/1?timeout=5", [6380]),
        ("redis://[fd00::7]:6381/0", [6381]),
    ],
)
def test_policies_open_the_ports_of_the_redis_url(chart: Chart, url: str, ports: list[int]) -> None:
    manifests = chart({"redis": {"url": url}, "networkPolicy": True})
    expected = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    for name in ("gateway", "scheduler"):
        assert expected in named(manifests, "NetworkPolicy", f"fairlead-{name}")["spec"]["egress"]


@pytest.mark.parametrize(("tracing", "port"), [("http://c.o:4317", 4317), ("https://c.o:443", 443), ("http://c", 4317)])
def test_policies_open_the_port_of_the_collector(chart: Chart, tracing: str, port: int) -> None:
    manifests = chart({"tracing": tracing, "networkPolicy": True})
    egress = named(manifests, "NetworkPolicy", "fairlead-gateway")["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": port}]} in egress


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"gateway": {"settings": {"THROTLE": 1}}}, "THROTLE"),
        ({"scheduler": {"settings": {"THROTTLE": 1}}}, "THROTTLE"),
        (pool(settings={"MAX_RUNING": 1}), "MAX_RUNING"),
        ({"gateway": {"settings": {"throttle": 1}}}, "throttle"),
    ],
)
def test_a_setting_that_no_service_has_is_refused(chart: Chart, values: Values, name: str) -> None:
    with pytest.raises(Refused, match=f"invalid propertyName '{name}'"):
        chart(values)


def test_the_schema_names_the_options_that_there_are() -> None:
    spec = importlib.util.spec_from_file_location("chart_settings", ROOT / "docs" / "chart_settings.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    schema = generator.SCHEMA.read_text()
    assert schema == generator.with_names(schema), "run `python docs/chart_settings.py`"


def test_a_name_of_which_no_pod_could_be_made_is_refused(chart: Chart) -> None:
    named_long = {"name": "a" * 30, "model": "a/model"}
    assert chart({"pools": [named_long]}, release="b" * 21)
    with pytest.raises(Refused, match="over 52 characters"):
        chart({"pools": [named_long]}, release="b" * 22)


def test_the_ingress_is_ready_for_streams_and_sessions(chart: Chart) -> None:
    own = {"nginx.ingress.kubernetes.io/proxy-body-size": "8m", "nginx.ingress.kubernetes.io/upstream-hash-by": None}
    manifests = chart({"ingress": {"host": "a.b", "annotations": own}})
    found = named(manifests, "Ingress", "fairlead-gateway")["metadata"]["annotations"]
    assert found == {
        "nginx.ingress.kubernetes.io/proxy-buffering": "off",
        "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
        "nginx.ingress.kubernetes.io/proxy-body-size": "8m",
    }

"""Dashboards and alert rules: valid, and about metrics that the services export. With Prometheus's own tools."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.metrics import FIRST_TOKEN_SECONDS
from tests.metrics import declared
from tests.system.deploy.forms import Manifest, named, selects, templates

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy/k8s/components/monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
METRIC = re.compile(r"\b(?:fairlead|gen_ai)_\w+")
GROUPING = re.compile(r"by \([^)]*\)")
PRODUCTION = "deploy/k8s/overlays/production"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(dashboard: Path) -> Iterator[dict[str, Any]]:
    yield from json.loads(dashboard.read_text())["panels"]


def metrics_of(expression: str) -> set[str]:
    """The metrics in a query, without the labels that it groups by."""
    return set(METRIC.findall(GROUPING.sub("", expression)))


def expressions() -> dict[str, str]:
    """Every query of rules and dashboards, by where it stands."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for path in DASHBOARDS:
        for panel in panels(path):
            found |= {f"{path.stem}: {panel['title']} {t['refId']}": t["expr"] for t in panel["targets"]}
    return found


def test_every_metric_named_is_exported() -> None:
    exported = declared()
    unknown = {where: sorted(metrics_of(expr) - exported) for where, expr in expressions().items()}
    assert {where: names for where, names in unknown.items() if names} == {}
    assert all(metrics_of(expr) for expr in expressions().values())


def test_every_metric_exported_is_shown() -> None:
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for e in expressions().values() for name in metrics_of(e)}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in declared()} - shown == set()


def test_metrics_that_scale_workers_are_exported(render: Callable[[str], list[Manifest]]) -> None:
    scalers = [m for m in render(PRODUCTION) if m["kind"] == "HorizontalPodAutoscaler"]
    names = {metric["pods"]["metric"]["name"] for m in scalers for metric in m["spec"]["metrics"] if "pods" in metric}
    keda = yaml.safe_load((ROOT / "deploy/k8s/components/autoscaling-keda/worker.yaml").read_text())
    queries = [trigger["metadata"]["query"] for trigger in keda["spec"]["triggers"]]
    assert names == {name for query in queries for name in metrics_of(query)}
    assert len(names) == 2
    assert names <= declared()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_what_grafana_loads(dashboard: Path) -> None:
    board = json.loads(dashboard.read_text())
    assert board["uid"] == dashboard.stem
    assert board["schemaVersion"] >= 39
    [source] = [variable for variable in board["templating"]["list"] if variable["type"] == "datasource"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        places.add((place["x"], place["y"]))
        assert place["x"] + place["w"] <= 24
        assert panel["datasource"]["uid"] == f"${{{source['name']}}}"
        assert panel["title"]
        assert panel["description"]
    assert len(places) == len(ids), "no panel lies on another"


def test_the_component_carries_them(render: Callable[[str], list[Manifest]]) -> None:
    maps = {m["metadata"]["name"]: m for m in render(PRODUCTION) if m["kind"] == "ConfigMap"}
    assert maps["fairlead-dashboards"]["data"].keys() == {path.name for path in DASHBOARDS}
    assert maps["fairlead-dashboards"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert maps["fairlead-alerts"]["data"].keys() == {"alerts.yaml"}


def test_the_operators_rules_are_the_same() -> None:
    alerts, rule = (
        yaml.safe_load((ROOT / "deploy/k8s/components" / component / "alerts.yaml").read_text())
        for component in ("monitoring", "prometheus-operator")
    )
    assert rule["spec"] == alerts


def test_the_operator_scrapes_every_service(render_with: Callable[[str], list[Manifest]]) -> None:
    manifests = render_with("prometheus-operator")
    selector = named(manifests, "PodMonitor", "fairlead-metrics")["spec"]["selector"]
    scraped = [template for template in templates(manifests) if selects(selector, template["metadata"]["labels"])]
    assert {t["spec"]["serviceAccountName"] for t in scraped} == {
        "fairlead-gateway", "fairlead-scheduler", "fairlead-worker",
    }  # fmt: skip


def test_every_alert_is_explained() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in text] == []


def test_every_metric_is_explained() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in declared()}
    assert [name for name in sorted(families) if f"`{name}`" not in text] == []


def test_every_attribute_of_spans_is_explained() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    names = re.findall(r'"(fairlead\.\w+)":', (ROOT / "serving/telemetry/spans.py").read_text())
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []


def test_alert_rules_fire_when_they_should(prometheus: Path, tmp_path: Path) -> None:
    shutil.copy(MONITORING / "alerts.yaml", tmp_path)
    shutil.copy(Path(__file__).parent / "alerts.test.yaml", tmp_path)
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run([prometheus / "promtool", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_their_tests_name_buckets_that_exist() -> None:
    texts = [path.read_text() for path in (MONITORING / "alerts.yaml", Path(__file__).parent / "alerts.test.yaml")]
    bounds = {float(bound) for text in texts for bound in re.findall(r'le="([\d.]+)"', text)}
    assert bounds
    assert bounds <= set(FIRST_TOKEN_SECONDS)


def test_every_alert_has_such_a_test() -> None:
    tested = set(re.findall(r'alertname="(\w+)"', (Path(__file__).parent / "alerts.test.yaml").read_text()))
    assert tested == {rule["alert"] for rule in rules()}


def test_prometheus_understands_every_query(prometheus: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    records = [{"record": f"r{number}", "expr": expr} for number, expr in enumerate(expressions().values())]
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": records}]}))
    done = subprocess.run([prometheus / "promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

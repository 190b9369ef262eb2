"""The production form, played on this machine: exactly its commands, environment, ports, volumes and probes."""

import base64
from pathlib import Path

import pytest

from tests.system.deploy.chart import Chart
from tests.system.deploy.chart_values import FORMS as VALUES
from tests.system.deploy.connections import OURS, documented
from tests.system.deploy.forms import EVALUATION, NAMESPACE, ROOT, Manifest
from tests.system.deploy.rehearsal import sandbox
from tests.system.deploy.rehearsal.stand_ins import with_stand_ins
from tests.unit.gateway.test_tls import issue

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(sandbox.SECONDS), sandbox.needed]


def test_a_week_in_production_loses_no_call(chart: Chart, tmp_path: Path) -> None:
    """By the chart, whose objects are those of overlays/production (test_chart.py), but for a second pool."""
    values = VALUES["overlays/production"]
    manifests = chart({**values, "pools": [*values["pools"], {"name": "second", "model": "second-model"}]})
    certificate, key = issue(tmp_path, "fairlead-gateway")
    secrets = [
        _secret("fairlead-cluster", {"FAIRLEAD_SECRET": "new" * 9, "FAIRLEAD_ACCEPTED_SECRET": "old" * 9}),
        _secret("fairlead-keys", {"keys.yaml": (ROOT / EVALUATION / "evaluation-keys.yaml").read_text()}),
        _secret("fairlead-tls", {path.name: path.read_text() for path in (certificate, key)}),
    ]
    forms = {"production": with_stand_ins(manifests), "secrets": secrets}
    report = sandbox.rehearse("production", forms, tmp_path, {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)})
    pools = {"smollm2-135m-instruct": "fairlead-worker", "second-model": "fairlead-second"}
    assert {name: answer["worker"].rpartition("-")[0] for name, answer in report["answers"].items()} == pools
    assert [len(answer["text"]) for answer in report["answers"].values()] == [5, 5]
    assert report["completions"].keys() == pools.keys()
    assert all(report["completions"].values()), "the HTTP port answers, under the same certificate"
    assert {name.rpartition("-")[0] for name in report["scraped"]} == {
        "fairlead-gateway", "fairlead-scheduler", "fairlead-worker", "fairlead-second",
    }  # fmt: skip
    assert all(report["scraped"].values()), "every service has metrics"
    assert {tuple(pair) for pair in report["connections"]} == _documented()
    assert report["failures"] == []
    assert len(report["completed"]) == 6, "every act had calls that began in it and were answered"
    assert report["old_secret"] == "UNAUTHENTICATED"
    workers = ["fairlead-second-0", "fairlead-worker-0", "fairlead-worker-1"]
    assert [sorted(each) for each in report["attached"]] == [workers] * 2, "in minReadySeconds, to each scheduler"
    killed = {"fairlead-worker-0": ["status -9"], "fairlead-scheduler-0": ["status -9"]}
    assert report["restarts"] == killed, "those that were killed, and no other"
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]


def _documented() -> set[tuple[str, str]]:
    """Which workloads may connect to which, by docs/architecture.md; the second pool as the first."""
    names = {pod.name: [f"fairlead-{pod.name}"] for pod in OURS if pod.labels}
    names["worker"].append("fairlead-second")
    return {
        (source, target)
        for connection in documented()
        for source in names.get(connection.source.name, [])
        for target in names.get(connection.target.name, [])
        if connection.port.number in (6379, 7000, 7050, 7100) and source != target
    }


def _secret(name: str, texts: dict[str, str]) -> Manifest:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}

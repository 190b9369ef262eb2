"""The manifests, played on this machine: exactly their commands, environment, ports, volumes and probes."""

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import Chart
from tests.deploy.chart_values import FORMS as VALUES
from tests.deploy.connections import OURS, documented
from tests.deploy.forms import (
    BASE,
    ENVOY,
    EVALUATION,
    FLEETS,
    FORMS,
    INFERENCE_POOL,
    NAMESPACE,
    ROOT,
    TWO_NODES,
    Manifest,
    config_maps,
    pod_templates,
)
from tests.deploy.rehearsal import sandbox
from tests.gateway.test_tls import issue

Render = Callable[[str], list[Manifest]]
PRODUCTION = "deploy/k8s/overlays/production"
IN_TURN = {
    "evaluation": EVALUATION,
    **{name: f"deploy/k8s/overlays/{name}" for name in ("cpu", "gpu", "vllm", "vllm-tensor-parallel", "adapter")},
}
NOT_PLAYED = {
    BASE: "it is `cpu` without its metrics",
    TWO_NODES: "ranks of another node are processes of vLLM's own",
    ENVOY: "tests/envoy plays Envoy with the picker and the limiter",
    INFERENCE_POOL: "it needs a gateway of the Gateway API",
}
# The differences: no GPU computes, and answers are known beforehand.
FAKE = {"ENGINE": "fake", "FAKE_STEP_SECONDS": "0.2", "VLLM_ARGS": ""}

pytestmark = [pytest.mark.e2e, sandbox.needed]


def test_every_form_is_played_or_there_is_a_reason() -> None:
    assert {*FORMS, *FLEETS} == {*IN_TURN.values(), PRODUCTION, *NOT_PLAYED}


def test_no_call_is_lost_while_one_form_takes_the_place_of_another(render: Render, tmp_path: Path) -> None:
    forms = {name: _with_stand_ins(render(form)) for name, form in IN_TURN.items()}
    report = sandbox.rehearse("forms", forms, tmp_path, {})
    over_http, over_grpc, page = report["first_calls"]
    assert json.loads(over_http)["choices"][0]["message"]["content"]
    assert over_grpc.strip()
    assert "<title>" in page
    assert report["failures"] == []
    assert len(report["completed"]) == 6, "every act had calls that began in it and were answered"
    assert report["restarts"] == {}
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]


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
    forms = {"production": _with_stand_ins(manifests), "secrets": secrets}
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


def _with_stand_ins(manifests: list[Manifest]) -> list[Manifest]:
    """The fake engine in workers; in sidecars the engine of tests/served_engine, told what `vllm serve` is told."""
    played = copy.deepcopy(manifests)
    for settings in config_maps(played).values():
        if "FAIRLEAD_WORKER_MODEL" in settings:
            settings |= {f"FAIRLEAD_WORKER_{name}": value for name, value in FAKE.items()}
    for template in [template for manifest in played for template in pod_templates(manifest)]:
        for engine in template["spec"].get("initContainers", []):
            engine |= {"command": ["python", "-m", "tests.served_engine"], "args": _told(engine)}
    return played


def _told(engine: dict[str, Any]) -> list[str]:
    told = dict(argument.removeprefix("--").split("=", 1) for argument in engine["args"])
    events = json.loads(told["kv-events-config"])
    options = {
        "port": told["port"],
        "events": events["endpoint"],
        "replay": events["replay_endpoint"],
        "max-num-seqs": told["max-num-seqs"],
        "budget": told["max-num-batched-tokens"],
        "model": engine["command"][-1],
        "blocks": "4096",
        "step-seconds": "0.2",
    }
    return [f"--{name}={value}" for name, value in options.items()]

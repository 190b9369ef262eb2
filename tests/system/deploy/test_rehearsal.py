"""The manifests, played on this machine: exactly their commands, environment, ports, volumes and probes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.deploy.forms import (
    BASE,
    ENVOY,
    EVALUATION,
    FLEETS,
    FORMS,
    INFERENCE_POOL,
    TWO_NODES,
    Manifest,
)
from tests.system.deploy.rehearsal import sandbox
from tests.system.deploy.rehearsal.stand_ins import with_stand_ins

Render = Callable[[str], list[Manifest]]
PRODUCTION = "deploy/k8s/overlays/production"
IN_TURN = {
    "evaluation": EVALUATION,
    **{name: f"deploy/k8s/overlays/{name}" for name in ("cpu", "gpu", "vllm", "vllm-tensor-parallel", "adapter")},
}
NOT_PLAYED = {
    BASE: "it is `cpu` without its metrics",
    TWO_NODES: "ranks of another node are processes of vLLM's own",
    ENVOY: "tests/unit/endpoint_picker plays Envoy with the picker and the limiter",
    INFERENCE_POOL: "it needs a gateway of the Gateway API",
}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(sandbox.SECONDS), sandbox.needed]


def test_every_form_is_played_or_there_is_a_reason() -> None:
    assert {*FORMS, *FLEETS} == {*IN_TURN.values(), PRODUCTION, *NOT_PLAYED}


def test_no_call_is_lost_while_one_form_takes_the_place_of_another(render: Render, tmp_path: Path) -> None:
    forms = {name: with_stand_ins(render(form)) for name, form in IN_TURN.items()}
    report = sandbox.rehearse("forms", forms, tmp_path, {})
    over_http, over_grpc, page = report["first_calls"]
    assert json.loads(over_http)["choices"][0]["message"]["content"]
    assert over_grpc.strip()
    assert "<title>" in page
    assert report["failures"] == []
    assert len(report["completed"]) == 6, "every act had calls that began in it and were answered"
    assert report["restarts"] == {}
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]

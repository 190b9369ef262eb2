"""A release of the chart is upgraded, fails, is rolled back, has a pool renamed and scaled, and loses no call."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.system.deploy.api_server import ApiServer, served
from tests.system.deploy.chart import Refused, Values
from tests.system.deploy.forms import EVALUATION, NAMESPACE, ROOT, Manifest
from tests.system.deploy.rehearsal import sandbox
from tests.system.deploy.rehearsal.stand_ins import with_stand_ins
from tests.system.deploy.release import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(sandbox.SECONDS), sandbox.needed]

MODEL = "smollm2-135m-instruct"
SCALED = {"autoscaling": {"min": 2, "max": 4}}
NEW: dict[str, Any] = {"name": "new", "model": MODEL, "replicas": 2}
CHANGED: Values = {"gateway": {"settings": {"RESPONSE_STORE_MIB": 20}}}


def old(**settings: Any) -> dict[str, Any]:
    return {"name": "old", "model": MODEL, "replicas": 2, "settings": settings}


def commands(release: Release) -> dict[str, list[Manifest]]:
    """The objects that there are after each command."""
    forms = {"0-install": release.install({"pools": [old()]})}
    forms["1-upgrade"] = release.upgrade({**CHANGED, "pools": [old(MAX_RUNNING=16)]})
    # Somebody made the StatefulSet anew with other fields, so that the cluster refuses it half-way.
    workload = release.server.named("statefulsets", "fairlead-old")
    policy = workload["spec"].pop("podManagementPolicy")
    with pytest.raises(Refused, match="Forbidden"):
        release.upgrade({**CHANGED, "pools": [old(MAX_RUNNING=8) | {"model": "another-model"}]})
    workload["spec"]["podManagementPolicy"] = policy
    forms["2-failed-upgrade"] = release.server.manifests()
    forms["3-rollback"] = release.rollback(1)
    forms["4-add"] = release.upgrade({"pools": [old(), NEW]})
    release.serve("new")
    forms["5-remove"] = release.upgrade({"pools": [NEW]})
    unnamed = {key: value for key, value in NEW.items() if key != "replicas"}
    forms["6-autoscale"] = release.upgrade({"pools": [unnamed | SCALED]})
    forms["7-fix-the-number"] = release.upgrade({"pools": [NEW]})
    return {name: with_stand_ins(manifests) for name, manifests in forms.items()}


def test_a_release_changes_for_a_week_and_loses_no_call(programs: Path, tmp_path: Path) -> None:
    server = ApiServer()
    with served(server, tmp_path) as kubeconfig:
        forms = commands(Release(programs / "helm", server, kubeconfig))
    secrets = {
        "fairlead-cluster": {"FAIRLEAD_SECRET": "the-secret-of-the-rehearsal"},
        "fairlead-keys": {"keys.yaml": (ROOT / EVALUATION / "evaluation-keys.yaml").read_text()},
    }
    forms["secrets"] = [
        {
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()},
        }
        for name, texts in secrets.items()
    ]
    report = sandbox.rehearse("upgrades", forms, tmp_path, {})
    assert report["failures"] == []
    assert len(report["completed"]) == len(forms) - 1, "every act had calls that began in it and were answered"
    before, scaled, renamed = {"fairlead-old": 2}, {"fairlead-old": 3}, {"fairlead-new": 2}
    expected = [before, before, scaled, before, before | renamed, renamed, renamed, renamed]
    assert list(report["workers"].values()) == expected
    assert report["restarts"] == {}
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]

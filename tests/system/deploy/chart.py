"""The chart, rendered; and what is the same in it and in kustomize's forms."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.system.deploy.forms import NAMESPACE, Manifest, config_maps, pod_templates

POD_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of")
OBJECT_LABELS = ("app.kubernetes.io/part-of", "grafana_dashboard")
# What only the chart has: a label of each pool, and how Helm and its upgrades treat objects.
OWN = ("fairlead-pool", "fairlead/model", "helm.sh/resource-policy")
HASH = re.compile(r"-[0-9a-z]{10}$")  # of a ConfigMap whose name follows from its data
Values = Mapping[str, Any]


class Refused(Exception):
    """Helm does not render the chart with these values; its message says why."""


class Chart:
    """Renders a chart; equal values are rendered once."""

    def __init__(self, helm: Path, folder: Path, home: Path) -> None:
        self._helm, self._folder, self._home = helm, folder, home
        self._rendered: dict[str, str] = {}

    def __call__(
        self, values: Values, release: str = "fairlead", namespace: str = NAMESPACE, kubernetes: str = "1.37"
    ) -> list[Manifest]:
        """What `helm install` would send to that version of Kubernetes. Raises Refused."""
        options = ["--name-template", release, "--namespace", namespace, "--kube-version", kubernetes]
        key = json.dumps([values, options])
        if key not in self._rendered:
            self._rendered[key] = self._run("template", values, *options)
        return [manifest for manifest in yaml.load_all(self._rendered[key], yaml.CSafeLoader) if manifest]

    def notes(self, values: Values) -> str:
        """What Helm says after an install."""
        return self._run("install", values, "--name-template", "fairlead", "--dry-run=client").partition("NOTES:")[2]

    def lint(self, values: Values) -> None:
        """Raises Refused with what `helm lint` finds."""
        self._run("lint", values, "--strict")

    def _run(self, verb: str, values: Values, *options: str) -> str:
        path = self._home / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values)))
        done = subprocess.run(
            [str(self._helm), verb, str(self._folder), "--values", str(path), *options],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HELM_CACHE_HOME": str(self._home), "HELM_CONFIG_HOME": str(self._home)},
        )
        if done.returncode != 0:
            raise Refused(done.stdout + done.stderr)
        return done.stdout


def settings(manifests: list[Manifest]) -> dict[str, dict[str, str]]:
    """The data of every ConfigMap, by its name without the hash."""
    return {HASH.sub("", name): data for name, data in config_maps(manifests).items()}


def comparable(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """By kind and name, without what differs between Helm and kustomize on purpose.

    Helm has no Namespace, and labels and annotations of its own.
    """
    hashed = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    text = json.dumps([manifest for manifest in manifests if manifest["kind"] != "Namespace"])
    for name in hashed:
        text = text.replace(f'"{name}"', json.dumps(HASH.sub("", name)))
    objects: list[Manifest] = json.loads(text)
    for manifest in objects:
        labels = manifest["metadata"]["labels"]
        manifest["metadata"]["labels"] = {name: labels[name] for name in OBJECT_LABELS if name in labels}
        for template in pod_templates(manifest):
            template["metadata"]["labels"] = {name: template["metadata"]["labels"][name] for name in POD_LABELS}
    return {(m["kind"], m["metadata"]["name"]): _plain(m) for m in objects}


def _plain(part: Any) -> Any:
    """Without empty parts and what only the chart has, and in one order where order does not matter."""
    if isinstance(part, list):
        parts = [_plain(each) for each in part]
        has_names = all(isinstance(each, dict) and "name" in each for each in parts)
        return sorted(parts, key=lambda each: each["name"]) if has_names else parts
    if isinstance(part, dict):
        plain = {name: _plain(value) for name, value in part.items() if name not in OWN}
        return {name: value for name, value in plain.items() if value not in ({}, None)}
    return part.strip() if isinstance(part, str) else part

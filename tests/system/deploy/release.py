"""A release of the chart, kept by the real Helm in a stand-in for Kubernetes' API server."""

import os
import subprocess
from pathlib import Path

import yaml

from tests.system.deploy.api_server import ApiServer
from tests.system.deploy.chart import Refused, Values
from tests.system.deploy.forms import NAMESPACE, ROOT, Manifest

CHART = ROOT / "deploy/helm/fairlead"


class Release:
    """The release `fairlead`; what it made is in `server`."""

    def __init__(self, helm: Path, server: ApiServer, kubeconfig: Path) -> None:
        self.server = server
        self._helm, self._kubeconfig = helm, kubeconfig

    def install(self, values: Values) -> list[Manifest]:
        """Return all objects that there are then. Raises Refused, as the others do."""
        return self._run("install", "fairlead", str(CHART), *self._values(values))

    def upgrade(self, values: Values) -> list[Manifest]:
        """Return all objects that there are then."""
        return self._run("upgrade", "fairlead", str(CHART), *self._values(values))

    def rollback(self, revision: int) -> list[Manifest]:
        """Return all objects that there are then."""
        return self._run("rollback", "fairlead", str(revision))

    def scale(self, pool: str, replicas: int) -> None:
        """As `kubectl scale` or an autoscaler does."""
        self._pool(pool)["spec"]["replicas"] = replicas

    def serve(self, pool: str) -> None:
        """Let all workers of the pool be ready."""
        self._pool(pool)["status"] = {"readyReplicas": self.replicas(pool)}

    def replicas(self, pool: str) -> int:
        """The number of workers that the pool is to have."""
        replicas: int = self._pool(pool)["spec"]["replicas"]
        return replicas

    def _pool(self, name: str) -> Manifest:
        return self.server.named("statefulsets", f"fairlead-{name}")

    def _values(self, values: Values) -> list[str]:
        path = self._kubeconfig.with_name("values.yaml")
        path.write_text(yaml.safe_dump(dict(values)))
        return ["--values", str(path), "--disable-openapi-validation"]

    def _run(self, *arguments: str) -> list[Manifest]:
        home = str(self._kubeconfig.parent)
        done = subprocess.run(
            [str(self._helm), *arguments, "--kubeconfig", str(self._kubeconfig), "--namespace", NAMESPACE],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home},
        )
        if done.returncode != 0:
            raise Refused(done.stdout + done.stderr)
        return self.server.manifests()

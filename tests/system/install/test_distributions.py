"""What `make build` makes: two wheels and two source archives, complete, with valid metadata and nothing beside."""

import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from tests.system.install.environment import ROOT

pytestmark = pytest.mark.slow

PACKAGES = {
    "fairlead": {"fairlead"},
    "fairlead_serving": {
        "serving",
        "throttler",
        "gateway",
        "global_scheduler",
        "local_worker",
        "engine_adapter",
        "endpoint_picker",
        "simulation",
        "cli",
    },
}
PROJECTS = {"fairlead": ROOT / "fairlead", "fairlead_serving": ROOT}


def wheel(dist: Path, name: str) -> zipfile.ZipFile:
    (path,) = dist.glob(f"{name}-*.whl")
    return zipfile.ZipFile(path)


def metadata(archive: zipfile.ZipFile) -> Metadata:
    """Checked as an index checks what is uploaded; raises when a field is not valid."""
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Metadata.from_email(archive.read(name), validate=True)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_every_file_of_its_packages_and_no_other(dist: Path, name: str) -> None:
    with wheel(dist, name) as archive:
        held = {file for file in archive.namelist() if ".dist-info/" not in file}
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES[name]
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".yaml"}
        or path.name == "py.typed"
        or (path.is_file() and "static" in path.parts)
    }
    assert held == sources


@pytest.mark.parametrize("name", PACKAGES)
def test_metadata_are_valid_and_the_licence_is_there(dist: Path, name: str) -> None:
    with wheel(dist, name) as archive:
        said = metadata(archive)
        assert said.license_expression == "Apache-2.0"
        assert said.license_files == ["LICENSE"]
        (licence,) = (file for file in archive.namelist() if file.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert said.description_content_type == "text/markdown"
    assert said.description == (PROJECTS[name] / "README.md").read_text()


def test_one_version_with_its_date_in_the_changelog(dist: Path) -> None:
    with wheel(dist, "fairlead") as sdk, wheel(dist, "fairlead_serving") as serving:
        version, needs = metadata(sdk).version, metadata(serving).requires_dist
        assert metadata(serving).version == version
    assert Requirement(f"fairlead=={version}") in (needs or [])
    dated = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert dated[0] == str(version)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_source_archive_is_whole(dist: Path, name: str) -> None:
    """`build` makes the wheel from the archive, so that all that the wheel holds was in there; links would be lost."""
    (path,) = dist.glob(f"{name}-*.tar.gz")
    with tarfile.open(path) as archive:
        assert [member.name for member in archive.getmembers() if not (member.isfile() or member.isdir())] == []
        licence = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/LICENSE")
        assert licence is not None
        assert licence.read() == (ROOT / "LICENSE").read_bytes()

"""What `make setup` installs: the checkout as an entry of the path, which type checkers read as Python does."""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.system.install.environment import IGNORED, ROOT, checked

pytestmark = pytest.mark.slow

BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


def test_an_editable_installation_is_a_folder_of_the_path(tmp_path: Path) -> None:
    source = tmp_path / "checkout"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*IGNORED))
    checked([sys.executable, "-c", BUILD, str(tmp_path)], source)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        added = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert [archive.read(name).decode().strip() for name in added] == [str(source)]

"""What `make setup` installs: an entry of the path, which type checkers and editors read as Python does."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.install.test_rust_free import IGNORED, ROOT

BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


def test_an_editable_installation_is_a_folder_of_the_path(tmp_path: Path) -> None:
    source = tmp_path / "fairlead"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*IGNORED))
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        added = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert [archive.read(name).decode().strip() for name in added] == [str(source)]

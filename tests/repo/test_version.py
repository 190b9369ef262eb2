"""Every place that names the version names the same one."""

import re
import tomllib

from serving.version import VERSION
from tests.repo.test_text import ROOT


def test_distributions_and_services_have_one_version() -> None:
    for file in (ROOT / "pyproject.toml", ROOT / "fairlead" / "pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        assert project["version"] == VERSION
        assert {*re.findall(r"fairlead==([\d.]+)", file.read_text())} <= {VERSION}

"""The files by which npm installs agents."""

import json
import re
from pathlib import Path

from tests.system.agents.programs import FILES
from tests.unit.gateway.http.clients import ENVIRONMENTS, LOCKED


def test_each_program_has_one_version_and_no_place() -> None:
    asked, locked = (json.loads(file.read_text()) for file in FILES)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked["dependencies"].values())
    assert locked["packages"][""]["dependencies"] == asked["dependencies"]
    packages = [entry for name, entry in locked["packages"].items() if name]
    assert packages
    assert not any("resolved" in entry for entry in packages), "a registry's address is no part of a version"


def test_the_documents_name_the_versions_that_are_tested() -> None:
    table = (Path(__file__).parents[3] / "docs/agents.md").read_text()
    versions = [*json.loads(FILES[0].read_text())["dependencies"].values()]
    pinned = [*ENVIRONMENTS[-2], *ENVIRONMENTS[-1]]
    pinned += [
        each for name, file in LOCKED.items() for each in file.read_text().split() if each.startswith(f"{name}==")
    ]
    versions += [each.partition("==")[2] for each in pinned]
    assert [version for version in versions if version not in table] == []

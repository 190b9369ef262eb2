"""The files by which npm installs agents."""

import json
import re

from tests.agents.programs import FILES


def test_each_program_has_one_version_and_no_place() -> None:
    asked, locked = (json.loads(file.read_text()) for file in FILES)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked["dependencies"].values())
    assert locked["packages"][""]["dependencies"] == asked["dependencies"]
    packages = [entry for name, entry in locked["packages"].items() if name]
    assert packages
    assert not any("resolved" in entry for entry in packages), "a registry's address is no part of a version"

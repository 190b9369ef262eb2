"""Code of others in this repository is what its authors published: version, licence and checksums stand beside it."""

import hashlib
import re
from pathlib import Path

VENDORED = Path(__file__).parents[2] / "gateway" / "page" / "static" / "vendor"


def test_each_file_has_the_checksum_that_is_stated() -> None:
    folders = list(VENDORED.iterdir())
    assert folders
    for folder in folders:
        said = dict(re.findall(r"^\| `(.+)` \| `([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE))
        held = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.iterdir()
            if path.name not in ("README.md", "LICENSE")
        }
        assert held == said
        assert "Permission is hereby granted" in (folder / "LICENSE").read_text()


def test_the_page_names_its_own_files_only() -> None:
    """An address of another host would be loaded from there, which the policy forbids and nobody would notice."""
    for path in VENDORED.parent.rglob("*"):
        if path.suffix in (".js", ".css", ".html") and VENDORED not in path.parents:
            found = re.findall(
                r"""(?:src|href|from|import|url)\s*[=(]?\s*["'(]?(?:https?:)?//[^\s"')]+""", path.read_text()
            )
            assert found == [], path

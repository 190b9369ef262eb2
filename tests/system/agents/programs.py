"""Agents of others that npm installs, once for all checkouts of a machine."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lock import CACHE, exclusively
from tests.unit.gateway.http.clients import python_with

FOLDER = Path(__file__).parent
FILES = (FOLDER / "package.json", FOLDER / "package-lock.json")
MISSING = ("code E404", "code ETARGET", "code EBADPLATFORM")  # what npm says of a package that it cannot have


def node_modules() -> Path:
    """The folder of the packages in package-lock.json; skips where there is no npm, or the registry lacks one."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    lock = hashlib.sha256(FILES[1].read_bytes()).hexdigest()[:12]
    place = CACHE / "clients" / f"npm-{lock}"
    with exclusively(place.name):
        if not (place / "ready").exists():
            place.mkdir(parents=True, exist_ok=True)
            for file in FILES:
                shutil.copy(file, place)
            install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error"]
            done = subprocess.run(install, cwd=place, capture_output=True, text=True)
            if any(reason in done.stderr for reason in MISSING):
                pytest.skip(f"npm: {done.stderr}")
            assert done.returncode == 0, done.stderr
            (place / "ready").touch()
    return place / "node_modules"


def program(package: str, name: str) -> Path:
    """The program `name` of a package of npm or, where package.json has none of that name, of PyPI; skips as above."""
    if package in json.loads(FILES[0].read_text())["dependencies"]:
        return node_modules() / ".bin" / name
    return python_with(package).parent / name

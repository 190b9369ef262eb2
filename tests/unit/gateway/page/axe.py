"""The accessibility checks of axe-core, from the npm registry."""

import shutil
import subprocess

import pytest

from lab.bench.page.browser import Browser
from tests.lock import CACHE, exclusively

PACKAGE = "axe-core@4.14.1"
RULES = "axe.run(document, {resultTypes: ['violations']})"
PLAIN = "found => found.violations.map(rule => [rule.impact, rule.id, rule.nodes.map(node => node.html)])"


def installed() -> str:
    """Return axe-core as a script; skip the test where it cannot be fetched."""
    folder = CACHE / PACKAGE
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    with exclusively("axe"):
        if not script.exists():
            if shutil.which("npm") is None:
                pytest.skip("needs npm for axe-core")
            folder.mkdir(exist_ok=True)
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                pytest.skip(f"npm: {done.stderr}")
    return script.read_text()


def violations(browser: Browser) -> list[list[object]]:
    """Return the impact, rule and elements of what axe-core finds wrong with the page as it is."""
    if browser.run("typeof axe") == "undefined":
        browser.run(f"{installed()}; undefined")
    found: list[list[object]] = browser.run(f"{RULES}.then({PLAIN})")
    return found

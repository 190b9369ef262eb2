"""Virtual environments that have one of the distributions, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# What a copy of the checkout is made without.
IGNORED = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())]
PINS = ROOT / "constraints" / "control-plane.txt"


class Environment:
    """A fresh virtual environment in `folder`, with `distributions`, each a file, and the pinned versions of others."""

    def __init__(self, folder: Path, *distributions: Path) -> None:
        self.folder = folder
        checked([sys.executable, "-m", "venv", "--without-pip", folder])
        # The distributions of this checkout come from their files: the index may know their names, too.
        links = [f"--find-links={distribution.parent}" for distribution in distributions]
        self._pip("install", "--quiet", "--no-compile", "--constraint", PINS, *links, *distributions)

    def program(self, name: str) -> Path:
        """The path of one of its commands."""
        return self.folder / "bin" / name

    def python(self, *arguments: str) -> str:
        """What Python prints there. It runs in the file system's root, so that nothing of the checkout is imported."""
        return checked([self.program("python"), *arguments], Path("/"))

    def installed(self) -> set[str]:
        """Every distribution, as name==version."""
        return {line.partition(" @ ")[0] for line in self._pip("freeze", "--all").splitlines()}

    def _pip(self, *arguments: str | Path) -> str:
        """What this environment's pip prints, at work there: a pip of its own would take seconds to install."""
        return checked([sys.executable, "-m", "pip", "--python", self.program("python"), *arguments])

    @property
    def site_packages(self) -> Path:
        """Where it keeps what is installed."""
        (folder,) = self.folder.glob("lib/python3*/site-packages")
        return folder


def checked(command: list[str | Path], cwd: Path | None = None) -> str:
    """What `command` prints; fails with all that it says when its status is not 0."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

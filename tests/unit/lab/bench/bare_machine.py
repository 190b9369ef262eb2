"""An emulation of a machine that receives the working tree and nothing else: its files without `.git`, an environment
with the packages of a usual image for PyTorch, no programs but Python, and no network."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
PACKAGES = [
    "accelerate", "annotated-doc", "anyio", "certifi", "charset-normalizer", "click", "filelock", "fsspec", "grpcio",
    "h11", "hf-xet", "httpcore", "httpcore2", "httpx", "httpx2", "huggingface-hub", "hypothesis", "idna", "iniconfig",
    "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "packaging", "pip", "pluggy", "protobuf", "psutil",
    "pygments", "pytest", "pytest-timeout", "pyyaml", "regex", "requests", "rich", "safetensors", "setuptools",
    "shellingham", "sniffio", "sortedcontainers", "sympy", "tokenizers", "torch", "tqdm", "transformers", "truststore",
    "typer", "typing-extensions", "typing-inspection", "urllib3", "uvloop", "xxhash",
]  # fmt: skip
SHARED = ("google",)  # folders in which several packages have a part
OFFLINE = """
import socket

connect, resolve = socket.socket.connect, socket.getaddrinfo

def refuse(host):
    if host not in (None, "localhost", "127.0.0.1", "::1"):
        raise OSError("this machine has no network")

def connect_here(sock, address):
    if isinstance(address, tuple):
        refuse(address[0])
    return connect(sock, address)

def resolve_here(host, *others, **named):
    refuse(host)
    return resolve(host, *others, **named)

socket.socket.connect, socket.getaddrinfo = connect_here, resolve_here
"""


class BareMachine:
    """The machine's file system below `folder`: the tree, and an environment of PACKAGES and what it `carries`."""

    def __init__(self, folder: Path, carries: Sequence[str] = ()) -> None:
        self.tree = folder / "tree"
        self._environment = folder / "environment"
        _copy_tree(self.tree)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._environment], check=True)
        (site,) = self._environment.glob("lib/python*/site-packages")
        for package in (*PACKAGES, *carries):
            _link(package, site)
        (site / "sitecustomize.py").write_text(OFFLINE)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Python with these arguments in the tree."""
        environment: dict[str, Any] = {"PATH": str(self._environment / "bin"), "OMP_NUM_THREADS": "1"}
        python = self._environment / "bin" / "python3"
        return subprocess.run(
            [python, *arguments], cwd=self.tree, env=environment, capture_output=True, text=True, check=False
        )


def _copy_tree(into: Path) -> None:
    """Copy what git would track: not its own folder, nor what .gitignore names."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    shutil.copytree(ROOT, into, ignore=shutil.ignore_patterns(".git", *ignored))


def _link(package: str, site: Path) -> None:
    """Make the package's files and folders visible in `site`, if it is installed here."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return
    parts = {file.parts[: 2 if file.parts[0] in SHARED else 1] for file in found.files or ()}
    for name in {Path(*part) for part in parts if part[0] not in ("..", "__pycache__")}:
        link = site / name
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(Path(str(found.locate_file(name))))

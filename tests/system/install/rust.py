"""Finds Rust in installed distributions: by who built the wheel, and by marks that the compiler leaves in binaries.

Both are needed: some wheels do not name their builder, and a stripped binary may carry no mark.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path

BUILDERS = re.compile(r"^Generator: .*(maturin|setuptools-rust)", re.MULTILINE)
MARKS = re.compile(
    rb"rust_eh_personality|/rustc/[0-9a-f]{40}|__rust_alloc|rustc version|rust_begin_unwind|\.cargo/registry"
)


def rust_in(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Distribution name → why it is Rust, for each one that is."""
    return {
        distribution.metadata["Name"]: reason for distribution in distributions if (reason := _reason(distribution))
    }


def _reason(distribution: Distribution) -> str | None:
    builder = BUILDERS.search(distribution.read_text("WHEEL") or "")
    if builder:
        return f"built by {builder[1]}"
    for path in _binaries(distribution):
        mark = MARKS.search(path.read_bytes())
        if mark:
            return f"{path.name} contains {mark[0].decode()}"
    return None


def _binaries(distribution: Distribution) -> Iterator[Path]:
    for file in distribution.files or []:
        path = Path(str(file.locate()))
        if path.is_file():
            with path.open("rb") as content:
                if content.read(4) == b"\x7fELF":
                    yield path

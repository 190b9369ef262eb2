"""The files of the page, read once; they hold no data of the cluster."""

import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class PageFile(NamedTuple):
    """One file as it is sent, with its entity tag."""

    kind: bytes
    content: bytes
    etag: str


def page_files() -> Mapping[str, PageFile]:
    """Return every file of the page by its path in URLs; the page itself is `/`."""
    found = dict(_files(resources.files("gateway.page") / "static", ""))
    return {"/": found.pop("/index.html"), **found}


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, PageFile]]:
    for entry in folder.iterdir():
        here = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, here)
        elif kind := KINDS.get(f".{entry.name.rpartition('.')[2]}"):
            content = entry.read_bytes()
            yield here, PageFile(kind, content, f'"{hashlib.sha256(content).hexdigest()[:16]}"')

"""Folders of published data, named by the user."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sources:
    """The folders of published data; None means that a folder was not given."""

    reference: Path | None = None  # the VTC authors' measurements
    traces: Path | None = None

"""Published data that is read from folders which the user names."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sources:
    """None: not given."""

    reference: Path | None = None  # the VTC authors' measurements
    traces: Path | None = None

"""Types of the commands' options, and checks of their output paths before any simulation."""

import argparse
import math
from pathlib import Path

from cli.writing import can_draw
from fairlead.errors import InvalidRequest

MOST_WORKERS = 1024


def whole(text: str) -> int:
    """Parse an integer of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def pool_size(text: str) -> int:
    """Parse a number of workers, at least 1 and at most MOST_WORKERS."""
    if (workers := whole(text)) > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} workers are more than {MOST_WORKERS:,}, the largest pool")
    return workers


def wholes(text: str) -> list[int]:
    """Parse a comma-separated list of integers of at least 1."""
    return [whole(number) for number in text.split(",")]


def above_zero(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def make_folder(folder: Path, option: str) -> None:
    """Create `folder` and its parents; raises InvalidRequest, with the option's name, when it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidRequest(f"cannot write to {folder}: {error.strerror}", option) from None


def written_to(folder: Path) -> str:
    """Return a command's last line, which says where the results are."""
    if can_draw():
        return f"plots and numbers: {folder}"
    return f"numbers: {folder}; for plots, which need matplotlib: pip install 'fairlead-serving[demo]'"

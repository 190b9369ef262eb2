"""What options of the simulating commands may be, and where their results go: checked before anything is simulated."""

import argparse
import math
from pathlib import Path

from cli.writing import can_draw
from fairlead.errors import InvalidRequest


def whole(text: str) -> int:
    """A whole number from 1 up, as an option."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def wholes(text: str) -> list[int]:
    """Several, separated by commas."""
    return [whole(number) for number in text.split(",")]


def above_zero(text: str) -> float:
    """A number above 0, as an option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def make_folder(folder: Path, option: str) -> None:
    """With those above it; raises InvalidRequest, naming the option, where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidRequest(f"nothing can be written to {folder}: {error.strerror}", option) from None


def make_file(path: Path, option: str) -> None:
    """What is there stays; raises InvalidRequest, naming the option, where it cannot be written."""
    make_folder(path.parent, option)
    try:
        path.open("a").close()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}", option) from None


def written_to(folder: Path) -> str:
    """What a command says at its end."""
    if can_draw():
        return f"plots and numbers: {folder}"
    return f"numbers: {folder}; for plots, which need matplotlib: pip install 'fairlead-serving[demo]'"

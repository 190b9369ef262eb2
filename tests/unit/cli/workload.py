"""A small request log for the commands that simulate."""

import json
from collections.abc import Sequence
from pathlib import Path

ANSWER = {"usage": {"completion_tokens": 1}}
WORD = "word "  # a token and a quarter, as the log's reader estimates


def write_log(path: Path, lines: Sequence[object]) -> Path:
    """One JSON document per line."""
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def requests(count: int, clients: int = 3, words: int = 60) -> list[object]:
    """Ten a second, from `clients` in turn."""
    return [{"timestamp": n / 10, "user": f"u{n % clients}", "prompt": WORD * words, **ANSWER} for n in range(count)]

"""What a service says in its log: where it listens, what it is doing before it is ready, and why it ended."""

import json
from pathlib import Path
from typing import Any

from serving.process import STARTING

FAILURES = ("error", "critical")


class ServiceLog:
    """The standard error of one process: JSON lines, and what is printed past the logger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, message: str) -> list[dict[str, Any]]:
        """The lines with `message`, as fields."""
        return [fields for fields in map(_parse, self._text()) if fields.get("message") == message]

    def step(self) -> str:
        """What the service is doing on its way to be ready."""
        steps = self.lines(STARTING)
        return steps[-1]["step"] if steps else STARTING

    def reason(self) -> str:
        """The last that was said of a failure, in one line: printed, as tracebacks are, or logged as an error."""
        for line in reversed(self._text()):
            fields = _parse(line)
            if not fields:
                return line.removeprefix("configuration: ")
            if fields.get("level") in FAILURES:
                return " ".join([fields["message"], *fields.get("exception", "").splitlines()[-1:]])
        return "it said nothing"

    def _text(self) -> list[str]:
        try:
            return [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]
        except FileNotFoundError:  # it has not been started yet
            return []


def _parse(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:  # no log line of ours, or one that is still being written
        return {}
    return fields if isinstance(fields, dict) else {}

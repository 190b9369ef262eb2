"""Reader of a service's log: its address, its start-up step, and the reason why it ended."""

import json
from pathlib import Path
from typing import Any

from serving.process import STARTING

FAILURES = ("error", "critical")


class ServiceLog:
    """The standard error of one process: JSON log lines, and lines printed outside the logger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, message: str) -> list[dict[str, Any]]:
        """Return the log lines with this message, as fields."""
        return [fields for fields in map(_parse, self._text()) if fields.get("message") == message]

    def step(self) -> str:
        """Return the current start-up step of the service."""
        steps = self.lines(STARTING)
        return steps[-1]["step"] if steps else STARTING

    def reason(self) -> str:
        """Return the last failure in one line: a printed line, such as the end of a traceback, or a logged error."""
        for line in reversed(self._text()):
            fields = _parse(line)
            if not fields:
                return line.removeprefix("configuration: ")
            if fields.get("level") in FAILURES:
                return " ".join([fields["message"], *fields.get("exception", "").splitlines()[-1:]])
        return "its log has no reason"

    def _text(self) -> list[str]:
        try:
            return [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]
        except FileNotFoundError:  # it has not been started yet
            return []


def _parse(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:  # not one of our log lines, or one that is still being written
        return {}
    return fields if isinstance(fields, dict) else {}

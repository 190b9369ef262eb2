"""Why a service ended, in one line, whatever its log holds."""

import json
from pathlib import Path

import pytest

from cli.service_log import ServiceLog

INFO = json.dumps({"level": "info", "message": "listening", "port": 1})
ERROR = json.dumps({"level": "error", "message": "it broke", "exception": "Traceback\n  File\nValueError: no"})


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([INFO, "configuration: kv_tokens: too few"], "kv_tokens: too few"),
        (
            [INFO, "Traceback (most recent call last):", "  File x", "ModuleNotFoundError: No module named 'y'", ""],
            None,
        ),
        ([ERROR, INFO], "it broke ValueError: no"),
        ([INFO], "its log has no reason"),
        ([], "its log has no reason"),
    ],
)
def test_the_reason_is_the_last_failure(tmp_path: Path, lines: list[str], reason: str | None) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(lines))
    assert ServiceLog(log).reason() == (reason or "ModuleNotFoundError: No module named 'y'")


def test_the_step_is_the_last_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert ServiceLog(log).step() == "starting"
    steps = [json.dumps({"message": "starting", "step": step}) for step in ("importing", "loading")]
    log.write_text("\n".join([*steps, INFO, '{"message": "star']))
    assert ServiceLog(log).step() == "loading"

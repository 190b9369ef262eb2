"""Files that change while a process starts and while it runs."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from serving import reload
from serving.config import ConfigError
from serving.reload import follow

WAIT = 60


async def test_each_change_is_loaded_also_one_before_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reload, "LOOK_SECONDS", 0.001)
    caplog.set_level("INFO", "serving.reload")
    file, loaded = tmp_path / "keys.yaml", asyncio.Queue[str]()

    def load() -> None:
        loaded.put_nowait(file.read_text())
        if file.read_text() == "wrong":
            raise ConfigError("keys: it is wrong")

    def change(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(file)

    change("loaded at the start")
    load()
    change("changed since")
    following = asyncio.create_task(follow([str(file)], load))
    async with asyncio.timeout(WAIT):
        assert [await loaded.get() for _ in range(2)] == ["loaded at the start", "changed since"]
        for text in ("wrong", "right"):
            change(text)
            assert await loaded.get() == text
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert caplog.messages == ["configuration not reloaded: it is wrong", "configuration reloaded"]

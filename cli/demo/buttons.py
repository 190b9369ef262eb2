"""The buttons that the page shows for a demo, offered on a Unix socket (see `gateway/page/controls.py`)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Button:
    """One button in its group; `pressed` is None for one that does something once.

    `says` is shown beneath the buttons.
    """

    name: str
    label: str
    group: str
    pressed: bool | None = None
    disabled: bool = False
    says: str = ""


async def offer(
    path: Path, buttons: Callable[[], Sequence[Button]], press: Callable[[str], Awaitable[None]]
) -> asyncio.Server:
    """Listen at `path`; each connection carries the name of a pressed button, or nothing, and is told all buttons."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readline()).decode(errors="replace").strip()
        if any(button.name == name and not button.disabled for button in buttons()):
            await press(name)
        writer.write(json.dumps([asdict(button) for button in buttons()]).encode() + b"\n")
        writer.close()

    return await asyncio.start_unix_server(answer, path)

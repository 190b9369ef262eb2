"""The buttons of the demo: what `fairlead demo --watch` offers on a Unix socket, and how the page presses them.

Each connection carries one line with the name of the pressed button, or an empty one, and one line of JSON back: the
list of the buttons. The socket lies in a folder of the user who started the demo, so other users cannot press them.
"""

import asyncio

MAX_LINE = 64 * 1024
SECONDS = 5.0


class NoControls(Exception):
    """The error for a demo that does not listen or answer."""


async def press(path: str, name: str) -> bytes:
    """Press the button `name`, or none if it is empty, and return the buttons as JSON; raise NoControls."""
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
            try:
                writer.write(name.replace("\n", " ").encode() + b"\n")
                return (await reader.readuntil(b"\n")).rstrip()
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NoControls(f"the demo does not answer: {error}") from error

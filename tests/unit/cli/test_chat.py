"""`fairlead chat` on a terminal: an error or Ctrl-C costs an answer, never the conversation."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import Stack, eventually

pytestmark = pytest.mark.e2e
DEADLINE = 200.0


class Terminal:
    """A command on a terminal of its own, and what stands on it."""

    def __init__(self, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(slave)
        self._seen = 0
        self._text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str) -> str:
        """What matches `pattern` first, after what was waited for before."""
        end = time.monotonic() + DEADLINE
        while not (found := re.compile(pattern).search(self._text, self._seen)):
            readable, _, _ = select.select([self._master], [], [], end - time.monotonic())
            assert readable, f"{pattern!r} is not in {self._text[self._seen :]!r}"
            self._text += os.read(self._master, 4096).decode(errors="replace")
        self._seen = found.end()
        return found[0]

    def interrupt(self) -> int:
        """Send SIGINT until the command has ended, and return its status.

        Python misses a SIGINT between the prompt's output and readline's wait for a key; a user presses Ctrl-C again.
        """
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(DEADLINE / 20)
        raise AssertionError(f"the command goes on after Ctrl-C: {self._text[-200:]!r}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    try:
        stack.worker("w0", model="tiny", engine="fake:0.02", max_prompt_tokens=3000)
        yield stack
    finally:
        stack.close()


def test_an_error_and_an_interrupt_leave_the_conversation(stack: Stack) -> None:
    terminal = Terminal("chat", "--gateway", stack.gateway().address, "--max-tokens", "4000")
    try:
        terminal.wait_for("tiny at 127.0.0.1:.*\n> ")
        terminal.type("/help\n")
        terminal.wait_for("Ctrl-D  ends the conversation")
        terminal.type("hello\n")
        terminal.wait_for("hello\r\n.{3}")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("\n> ")
        eventually(lambda: stack.requests() == 0, "the answer that was stopped is computed no further")
        terminal.type("x" * 3500 + "\n")
        terminal.wait_for("fairlead: prompt: at most 3000 prompt tokens, .*; an empty line sends the message again")
        terminal.type("\n")
        terminal.wait_for("fairlead: prompt: at most 3000 prompt tokens, .*; an empty line sends the message again")
        terminal.type("short\n")
        terminal.wait_for("short\r\n.{3}")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("\n> ")
        assert terminal.interrupt() == 0
    finally:
        terminal.close()

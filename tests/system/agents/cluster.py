"""A gateway, a scheduler and two workers whose model answers tasks, and what can happen to them."""

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.services import Process, Stack, eventually
from tests.system.agents.engine import BEGINS
from tests.unit.gateway.http.http_client import TEXT, HttpClient

KEY = "any"  # names no users: all programs are one client
FRONT_KEY = "front"  # of a program that names its users
TENANTS = {KEY: "agents", "other": "others", FRONT_KEY: "front"}  # by key
Caller = Mapping[str, str]
CALLER: Caller = {"authorization": f"Bearer {KEY}"}
OPEN_CALLS = 8  # of one client
SECONDS = 120.0  # for a program's task
NEXT_SECRET = "the secret of the cluster from tomorrow on"
WORKER: dict[str, object] = {
    "accepted_secret": NEXT_SECRET,
    "engine": "fake",
    "model": "tiny",
    "kv_tokens": 2**20,
    "block_tokens": 256,
}


class Cluster:
    """The processes, and the gateway's log of calls."""

    def __init__(self, folder: Path, step_seconds: float = 0.005) -> None:
        self._step_seconds = step_seconds
        self.stack = Stack(folder, accepted_secret=NEXT_SECRET)
        for name in ("a", "b"):
            self._start_worker(name)
        self._keys = folder / "keys.yaml"
        entries = [
            {"hash": hashlib.sha256(key.encode()).hexdigest(), "tenant": tenant, "names_users": key == FRONT_KEY}
            for key, tenant in TENANTS.items()
        ]
        self._keys.write_text(json.dumps({"keys": entries}))
        self.gateway, self.port = self.start_gateway()
        self._held = ExitStack()
        self.url = f"http://127.0.0.1:{self.port}"

    def start_gateway(self, **settings: object) -> tuple[Process, int]:
        """Start a gateway, and return it with the port at which it answers HTTP."""
        gateway = self.stack.start(
            "gateway",
            scheduler=self.stack.addresses,
            keys=self._keys,
            http_listen="127.0.0.1:0",
            throttle="none",
            max_streams_per_client=OPEN_CALLS,
            **settings,
        )
        gateway.wait_for("ready")
        return gateway, gateway.wait_for("listening")["http_port"]

    def calls(self) -> list[dict[str, Any]]:
        """The calls that have ended, in the order of their ends."""
        return self.gateway.logged("call ended")

    def completed(self, before: int) -> list[dict[str, Any]]:
        """The calls after the first `before` that completed; none must have failed but by the limit of open calls."""
        calls = self.calls()[before:]
        assert {call["outcome"] for call in calls} <= {"COMPLETED", "REJECTED_CLIENT_LIMIT", "CANCELLED"}
        return [call for call in calls if call["outcome"] == "COMPLETED"]

    def fill(self, caller: Caller = CALLER) -> None:
        """Hold as many calls open as the client may have whose headers these are."""
        body = {"prompt": "x", "max_tokens": 30_000, "stream": True, "ignore_eos": True}
        client = HttpClient(self.port)
        for _ in range(OPEN_CALLS):
            connection = self._held.enter_context(client.begin(TEXT, body, **caller))
            assert connection.recv(12) == b"HTTP/1.1 200"

    def make_room(self) -> None:
        """Wait until a call was refused, and close those that are held open."""
        eventually(
            lambda: any(call["outcome"] == "REJECTED_CLIENT_LIMIT" for call in self.calls()[-1:]), "a call is refused"
        )
        self._held.close()

    def kill_worker(self) -> None:
        """Kill the worker that begins the last answer to the next task, and start another one of its name."""
        begun = {name: len(worker.logged(BEGINS)) for name, worker in self.stack.workers.items()}

        def answering() -> str | None:
            workers = self.stack.workers.items()
            return next((name for name, each in workers if each.logged(BEGINS)[begun[name] :]), None)

        name = eventually(answering, "a worker begins the last answer")
        self.stack.workers[name].kill()
        self._start_worker(name)

    def _start_worker(self, name: str) -> None:
        settings = {**WORKER, "name": name, "scheduler": self.stack.addresses, "engine": f"fake:{self._step_seconds}"}
        self.stack.workers[name] = self.stack.start("tests.system.agents", **settings)


@contextmanager
def running(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a program while the block does something to the cluster; fail with what it says unless it ends with 0."""
    output = folder / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PWD": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            yield
            assert process.wait(SECONDS) == 0, output.read_text()
        except BaseException as error:
            error.add_note(output.read_text())
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

"""Fairlead between the application and fake workers, with a second gateway that has TLS."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.service_process import ServiceProcess
from cli.stack import Stack
from lab.bench.control_plane.job import TOKENS

GATEWAY = ("--throttle", "none", "--max-streams", "16384")
START_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway's addresses, the ids of the processes whose CPU time is measured, and who signed its certificate."""

    grpc: str
    http: str
    processes: dict[str, int]
    authority: Path | None = None


def start(workers: int, step_seconds: float, callers: int, prompt_bytes: int, token_bytes: int) -> Stack:
    """Return a stack of workers with the fake engine, whose steps take this time for any batch.

    `token_bytes` of a prompt are a token. Each worker has room for twice what all callers may have running.
    """
    options = {
        "max-prompt-tokens": prompt_bytes,
        "kv-tokens": max(1 << 21, 2 * callers * (prompt_bytes + TOKENS)),
        "token-budget": 1 << 20,
        "max-running": 64,
    }
    worker_args = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return Stack(
        workers=workers,
        log_dir=Path(tempfile.mkdtemp(prefix="fairlead-bench-")),
        model="fake",
        engine=f"fake:{step_seconds},{token_bytes}",
        worker_args=worker_args,
        gateway_args=list(GATEWAY),
        http_listen="127.0.0.1:0",
    )


def processes(stack: Stack) -> dict[str, int]:
    """Return the ids of all processes by name, including the workers."""
    return {process.name: process.pid for process in stack.processes}


def plain(stack: Stack) -> Gateway:
    """Return the gateway of the stack, which has no TLS."""
    http = stack.http.removeprefix("http://").removesuffix("/v1")
    return Gateway(stack.gateway, http, processes(stack))


@contextmanager
def with_tls(stack: Stack) -> Iterator[Gateway]:
    """Run a second gateway, with TLS, before the workers of the stack."""
    with tempfile.TemporaryDirectory() as folder:
        chain, key = _certificate(Path(folder))
        tls = ["--tls", f"{chain},{key}"]
        listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--scheduler", stack.scheduler]
        log = Path(folder) / "gateway.log"
        process = ServiceProcess(
            "gateway", "gateway", [*listen, *tls, *GATEWAY], {"FAIRLEAD_SECRET": stack.secret}, log
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            process.wait_for("ready", deadline)
            ports = process.wait_for("listening", deadline)
            ids = {**processes(stack), "gateway": process.pid}
            yield Gateway(f"localhost:{ports['port']}", f"localhost:{ports['http_port']}", ids, chain)
        finally:
            process.terminate()
            process.end(time.monotonic() + END_SECONDS)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for localhost that vouches for itself, and its key."""
    chain, key = folder / "tls.crt", folder / "tls.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key

"""Install routers into their own environment, start them over fake workers, and run the job through them."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from lab.bench.control_plane.job import Job, Measured

HERE = Path(__file__).parent
FOLDER = Path(".cache/routers")
PACKAGES = ("sglang-router==0.3.2", "vllm-router==0.1.17", "litellm[proxy]==1.106.0", "aiohttp==3.14.5")
START_SECONDS = 60.0


Command = Callable[[Path, Sequence[str], int], list[str]]  # the environment's bin, the workers' URLs, the port


def _in_rust(module: str) -> Command:
    def command(programs: Path, urls: Sequence[str], port: int) -> list[str]:
        options = ["--policy", "cache_aware", "--host", "127.0.0.1", "--port", str(port)]
        options += ["--prometheus-port", str(_free_port()), "--log-level", "error"]
        return [str(programs / "python"), "-m", module, *options, "--worker-urls", *urls]

    return command


def _litellm(programs: Path, urls: Sequence[str], port: int) -> list[str]:
    reached = [{"model": "text-completion-openai/fake", "api_base": f"{url}/v1", "api_key": "x"} for url in urls]
    models = [{"model_name": "fake", "litellm_params": parameters} for parameters in reached]
    config = Path(tempfile.mkdtemp()) / "litellm.yaml"
    # Without keys, like the other routers here.
    settings = {"dangerously_permit_weak_or_unset_master_key": True}
    config.write_text(json.dumps({"model_list": models, "general_settings": settings}))
    return [str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


ROUTERS: dict[str, Command] = {
    "sglang": _in_rust("sglang_router.launch_router"),
    "vllm": _in_rust("vllm_router.launch_router"),
    "litellm": _litellm,
}


def install() -> Path:
    """Create the environment once and return its Python."""
    python = FOLDER / "bin" / "python"
    if not (FOLDER / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True, capture_output=True)
        (FOLDER / "installed").touch()
    return python


@contextlib.contextmanager
def workers(python: Path, number: int, step_seconds: float) -> Iterator[list[str]]:
    """Run fake HTTP workers, whose steps take this time; yield their URLs."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_worker(python, step_seconds)) for _ in range(number)]


@contextlib.contextmanager
def router(python: Path, name: str, urls: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run a router before the workers at `urls`; yield its URL and its process id."""
    port = _free_port()
    with _process(ROUTERS[name](python.parent, urls, port)) as pid:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/v1/models")
        yield url, pid


def load(python: Path, url: str, job: Job, pids: dict[str, int]) -> Measured:
    """Run the job over HTTP in the routers' environment."""
    arguments = [url, json.dumps(asdict(job)), json.dumps(pids)]
    command = [str(python), str(HERE / "http_load.py"), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured(**json.loads(done.stdout))


@contextlib.contextmanager
def _worker(python: Path, step_seconds: float) -> Iterator[str]:
    port = _free_port()
    with _process([str(python), str(HERE / "http_worker.py"), str(port), str(step_seconds)]):
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[int]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])

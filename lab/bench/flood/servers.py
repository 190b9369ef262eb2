"""Servers of others on this machine: vLLM's own, and LiteLLM's proxy before it, in an environment of its own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.bench.flood.engine import EngineSettings
from local_worker.engine.model_files import resolve

LITELLM = "litellm[proxy]==1.106.0"
FOLDER = Path(".cache/litellm")
# LiteLLM keeps keys in a database. Without one, this function names the limits of each key.
AUTHENTICATION = """
from litellm.proxy._types import UserAPIKeyAuth

async def authenticate(request, api_key: str) -> UserAPIKeyAuth:
    return UserAPIKeyAuth(api_key=api_key, user_id=api_key, rpm_limit={limit})
"""
POLL_SECONDS = 0.2
STOP_SECONDS = 20.0


class ServerFailed(Exception):
    """The error for a server that ended before it served. The message names its log."""


@contextlib.contextmanager
def vllm(settings: EngineSettings, policy: str, logs: Path) -> Iterator[str]:
    """Run `vllm serve` with a scheduling policy, and yield its URL."""
    port = free_port()
    arguments = {
        "model": resolve(settings.model),
        "served-model-name": settings.served_name,
        "port": port,
        "dtype": settings.dtype,
        "max-model-len": settings.context,
        "max-num-seqs": settings.max_running,
        "max-num-batched-tokens": settings.token_budget,
        "block-size": settings.block_tokens,
        "num-gpu-blocks-override": settings.kv_tokens // settings.block_tokens + 1,  # the first is never used
        "gpu-memory-utilization": settings.memory_fraction,
        "scheduling-policy": policy,
        "long-prefill-token-threshold": settings.long_prefill_tokens,
    }
    # The module is what the command `vllm serve` runs, which the wheel for CPUs has under a name that does not start.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--enforce-eager"]
    command += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    command += [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(settings.threads),
        "VLLM_NO_USAGE_STATS": "1",
    }
    with _server(command, environment, f"http://127.0.0.1:{port}/health", logs / "vllm.log"):
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def litellm(url: str, model: str, limit: int, logs: Path) -> Iterator[str]:
    """Run LiteLLM's proxy before `url`, where each API key has a limit of calls per minute, and yield its URL."""
    port = free_port()
    reached = {"model": f"text-completion-openai/{model}", "api_base": url, "api_key": "any"}
    config = {
        "model_list": [{"model_name": model, "litellm_params": reached}],
        "general_settings": {
            "custom_auth": "authentication.authenticate",
            "dangerously_permit_weak_or_unset_master_key": True,  # no key administers it
        },
        "router_settings": {"num_retries": 0},
    }
    (logs / "authentication.py").write_text(AUTHENTICATION.format(limit=limit))
    (logs / "litellm.yaml").write_text(json.dumps(config))
    command = [str(_litellm_environment() / "bin" / "litellm"), "--config", str(logs / "litellm.yaml")]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else it asks the network for prices
    with _server(command, environment, f"http://127.0.0.1:{port}/health/liveliness", logs / "litellm.log"):
        yield f"http://127.0.0.1:{port}/v1"


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def _server(command: Sequence[str], environment: Mapping[str, str], health: str, log: Path) -> Iterator[None]:
    """Run a server from its first healthy answer to the end; raises ServerFailed if it ends before."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}, process_group=0
        )
    try:
        while not _is_healthy(health):
            if process.poll() is not None:
                raise ServerFailed(f"{command[0]} ended with status {process.returncode}; its log is {log}")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _litellm_environment() -> Path:
    """Return the folder of an environment with LiteLLM, which is installed once."""
    if not (FOLDER / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
        subprocess.run([str(FOLDER / "bin" / "pip"), "install", "--quiet", LITELLM], check=True)
        (FOLDER / "installed").touch()
    return FOLDER

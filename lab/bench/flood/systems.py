"""The systems that are compared, each started over its own engine."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cli.stack import Stack
from global_scheduler.core.policies import DEFAULT_POLICY
from lab.bench.flood.client import Endpoint
from lab.bench.flood.engine import EngineSettings
from lab.bench.flood.servers import litellm, vllm
from lab.bench.flood.workload import AGENT, FLOOD, QUIET

# What an operator would set who knows which user floods; a smaller number goes first.
PRIORITIES = {QUIET: {"priority": 0}, AGENT: {"priority": 0}, FLOOD: {"priority": 1}}
# The scheduler's policy beside each policy of the workers; with one worker it has no choice.
ACROSS = {"fcfs": "round-robin", "vtc": "per-client-round-robin", "dlpm": DEFAULT_POLICY}


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings with which a system starts: the engine's settings, a folder for logs, and a limit."""

    engine: EngineSettings
    logs: Path
    per_minute: int  # calls of each user that LiteLLM lets through


System = Callable[[Setting], AbstractContextManager[Endpoint]]


@contextlib.contextmanager
def vllm_alone(policy: str, fields: Mapping[str, Mapping[str, int]], setting: Setting) -> Iterator[Endpoint]:
    """Run vLLM's own server."""
    with vllm(setting.engine, policy, setting.logs) as url:
        yield Endpoint(url, setting.engine.served_name, fields)


@contextlib.contextmanager
def litellm_before_vllm(setting: Setting) -> Iterator[Endpoint]:
    """Run LiteLLM's proxy with a limit of calls per minute for each user, before vLLM's own server."""
    model = setting.engine.served_name
    with (
        vllm(setting.engine, "fcfs", setting.logs) as url,
        litellm(url, model, setting.per_minute, setting.logs) as limited,
    ):
        yield Endpoint(limited, model)


@contextlib.contextmanager
def fairlead(engine: str, policy: str, setting: Setting) -> Iterator[Endpoint]:
    """Run Fairlead with one worker, and without a throttle, so that the queue alone decides."""
    sizes = setting.engine
    worker_args = {
        "policy": policy,
        "dtype": sizes.dtype,
        "kv-tokens": sizes.kv_tokens,
        "block-tokens": sizes.block_tokens,
        "max-running": sizes.max_running,
        "token-budget": sizes.token_budget,
        "max-prompt-tokens": sizes.context - 1,
    }
    if engine == "vllm":
        arguments = f"{{enforce_eager: true, max_model_len: {sizes.context}}}"
        worker_args |= {"vllm-args": arguments, "kv-tokens": f"{sizes.kv_tokens},{100 * sizes.memory_fraction:g}%"}
    stack = Stack(
        workers=1,
        log_dir=setting.logs,
        model=sizes.model,
        engine=engine,
        http_listen="127.0.0.1:0",
        scheduler_args=["--policy", ACROSS[policy]],
        worker_args=[part for name, value in worker_args.items() for part in (f"--{name}", str(value))],
        gateway_args=["--throttle", "none"],
    )
    with stack:
        yield Endpoint(stack.http, sizes.served_name)


SYSTEMS: Mapping[str, System] = {
    "vLLM, FCFS": partial(vllm_alone, "fcfs", {}),
    "vLLM, priority": partial(vllm_alone, "priority", PRIORITIES),
    "LiteLLM before vLLM": litellm_before_vllm,
    "Fairlead over vLLM, FCFS": partial(fairlead, "vllm", "fcfs"),
    "Fairlead over vLLM, VTC": partial(fairlead, "vllm", "vtc"),
    "Fairlead over vLLM, DLPM": partial(fairlead, "vllm", "dlpm"),
    "Fairlead, own engine, DLPM": partial(fairlead, "transformers", "dlpm"),
}

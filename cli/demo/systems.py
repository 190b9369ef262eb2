"""The systems of which the demo compares three, and the stack of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.demo.lengths import lengths_for
from cli.stack import Stack

WORKERS = 2
MAX_RUNNING = 8
FAKE_STEP_SECONDS = 0.03  # slow enough that users on a busy machine still have requests waiting


@dataclass(frozen=True, slots=True)
class System:
    """A combination of a local and a global policy."""

    title: str
    local: str
    across: str


FCFS = System("FCFS + round robin", "fcfs", "round-robin")
VTC = System("VTC", "vtc", "per-client-round-robin")
LEAST_DELAY = System("DLPM + least delay", "dlpm", "least-delay")
DOUBLEQ = System("DLPM + DoubleQ", "dlpm", "doubleq")
FAIR = {system.across: system for system in (LEAST_DELAY, DOUBLEQ)}  # by the route that the demo is asked for


def scheduler_args(system: System, engine: str) -> list[str]:
    """Return the scheduler's arguments under `system`."""
    quantum = ["--quantum-tokens", str(2 * lengths_for(engine).quantum)]
    return ["--policy", system.across, *(quantum if system is DOUBLEQ else [])]


def worker_args(system: System, engine: str, step_seconds: float = FAKE_STEP_SECONDS) -> list[str]:
    """Return the workers' arguments under `system`; a step of the fake engine takes `step_seconds`."""
    lengths = lengths_for(engine)
    return [
        *("--policy", system.local),
        *("--kv-tokens", str(lengths.cache)),
        *("--block-tokens", str(lengths.page)),
        *("--max-prompt-tokens", str(lengths.prompt)),
        *("--token-budget", str(lengths.prompt + MAX_RUNNING)),  # a whole prompt in one step
        *("--max-running", str(MAX_RUNNING)),
        *("--quantum-tokens", str(lengths.quantum)),
        *_of_engine(engine, step_seconds),
    ]


def _of_engine(engine: str, step_seconds: float) -> list[str]:
    """Return the arguments that only this engine has."""
    if engine == "fake":
        return ["--engine", f"fake:{step_seconds}"]
    if engine == "vllm":  # like our engine, and without minutes of compilation
        return ["--dtype", "float32", "--vllm-args", "{enforce_eager: true}"]
    return []


def stack(
    system: System,
    model: str,
    engine: str,
    logs: Path,
    *,
    step_seconds: float = FAKE_STEP_SECONDS,
    page_listen: str = "",
    environment: Mapping[str, str] | None = None,
) -> Stack:
    """Return the stack of `system`, not yet started. It has no throttle: only the schedulers differ."""
    return Stack(
        workers=WORKERS,
        model=model,
        engine=engine,
        scheduler_args=scheduler_args(system, engine),
        worker_args=worker_args(system, engine, step_seconds),
        gateway_args=["--throttle", "none"],
        page_listen=page_listen,
        environment=environment,
        log_dir=logs / system.local,
    )

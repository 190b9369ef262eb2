"""The systems of which the demo compares three, and the stack of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.demo.users import ANSWER, LONGEST_PROMPT, PROMPT_PREFIX, QUESTION
from cli.stack import Stack

WORKERS = 2
MAX_RUNNING = 8
BLOCK_TOKENS = 4
# Fits the prefix of one user and six calls that share it: a scheduler that alternates between users with every call
# evicts each user's prefix before its next call. It is small because the bound grows with it (docs/fairness.md).
KV_TOKENS = PROMPT_PREFIX + 6 * (QUESTION + ANSWER)
WORKER_ARGS = [
    *("--kv-tokens", str(KV_TOKENS)),
    *("--block-tokens", str(BLOCK_TOKENS)),
    *("--max-prompt-tokens", str(LONGEST_PROMPT)),
    *("--token-budget", str(LONGEST_PROMPT + MAX_RUNNING)),  # a whole prompt in one step
    *("--max-running", str(MAX_RUNNING)),
    *("--quantum-tokens", "128"),  # eight calls whose prefix is cached
]
SCHEDULER_ARGS = ["--quantum-tokens", "256"]
FAKE_STEP_SECONDS = 0.03  # slow enough that users on a busy machine still have requests waiting


@dataclass(frozen=True, slots=True)
class System:
    """A combination of a local and a global policy."""

    title: str
    local: str
    across: str


FCFS = System("FCFS + round robin", "fcfs", "round-robin")
VTC = System("VTC", "vtc", "per-client-round-robin")
DLPM = System("DLPM + DoubleQ", "dlpm", "doubleq")
LEAST_DELAY = System("DLPM + least delay", "dlpm", "least-delay")
FAIR = {system.across: system for system in (DLPM, LEAST_DELAY)}  # by the route that the demo is asked for


def scheduler_args(system: System) -> list[str]:
    """Return the scheduler's arguments under `system`."""
    return [*SCHEDULER_ARGS, "--policy", system.across]


def worker_args(system: System, engine: str, step_seconds: float = FAKE_STEP_SECONDS) -> list[str]:
    """Return the workers' arguments under `system`; a step of the fake engine takes `step_seconds`."""
    fake = ["--fake-step-seconds", str(step_seconds)] if engine == "fake" else []
    return [*WORKER_ARGS, *fake, "--policy", system.local]


def stack(
    system: System,
    model: str,
    engine: str,
    logs: Path,
    *,
    step_seconds: float = FAKE_STEP_SECONDS,
    page_listen: str = "",
    gateway_args: Sequence[str] = (),
) -> Stack:
    """Return the stack of `system`, not yet started. It has no throttle: only the schedulers differ."""
    return Stack(
        workers=WORKERS,
        model=model,
        engine=engine,
        scheduler_args=scheduler_args(system),
        worker_args=worker_args(system, engine, step_seconds),
        gateway_args=["--throttle", "none", *gateway_args],
        page_listen=page_listen,
        log_dir=logs / system.local,
    )

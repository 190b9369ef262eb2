"""The three systems that the demo compares, and the stack of each."""

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
FAKE_STEP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class System:
    """A combination of a local and a global policy."""

    title: str
    local: str
    across: str


FCFS = System("FCFS + round robin", "fcfs", "round-robin")
VTC = System("VTC", "vtc", "per-client-round-robin")
DLPM = System("DLPM + DoubleQ", "dlpm", "doubleq")


def stack(system: System, model: str, engine: str, logs: Path) -> Stack:
    """Return the stack of `system`, not yet started. It has no throttle: only the schedulers differ."""
    fake = ["--fake-step-seconds", str(FAKE_STEP_SECONDS)] if engine == "fake" else []
    return Stack(
        workers=WORKERS,
        model=model,
        engine=engine,
        scheduler_args=[*SCHEDULER_ARGS, "--policy", system.across],
        worker_args=[*WORKER_ARGS, *fake, "--policy", system.local],
        gateway_args=["--throttle", "none"],
        log_dir=logs / system.local,
    )

"""vLLM as a worker with one thread imports it: from then on a fork of this process need not import it.

On a CPU it is changed here so that it starts soon and waits asleep. Of itself it imports itself anew for each rank and
for each architecture that it sees for the first time, which takes 10 s of processor time; compiles functions for token
ids and log-probabilities, also if told to compile no model; and computes while it awaits messages and tensors.
"""

import importlib
from functools import partial
from typing import Any

from local_worker.engine.vllm.environment import prepare
from tests.engines import VLLM_RUNNER
from tests.system.vllm.interpreted import lend_backend
from tests.system.vllm.ranks import start_ranks_by

# vLLM notifies whoever waits for a message through a socket that may drop a notification right after another one, which
# goes unnoticed while the waiting process computes. One that sleeps looks for itself after this time.
LOOK_MS = 10


def asleep(condition: Any) -> Any:
    """Return vLLM's class of conditions, whose instances wait for at most LOOK_MS at a time."""

    class Asleep(condition):
        def wait(self, timeout_ms: int | None = None) -> None:
            super().wait(LOOK_MS if timeout_ms is None else min(timeout_ms, LOOK_MS))

    return Asleep


def lighten() -> None:
    """Let vLLM's processes look at architectures themselves, compile nothing, and send tensors by gloo."""
    compiler: Any = importlib.import_module("torch._dynamo.config")
    architectures: Any = importlib.import_module("vllm.model_executor.models.registry")
    messages: Any = importlib.import_module("vllm.distributed.device_communicators.shm_broadcast")
    tensors: Any = importlib.import_module("vllm.distributed.device_communicators.cpu_communicator")
    architectures._run_in_subprocess = lambda function: function()
    compiler.disable = True
    messages.SpinCondition = partial(asleep(messages.SpinCondition), busy_loop_s=0.0)
    tensors.CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False


if VLLM_RUNNER == "v2":
    lend_backend()
prepare(VLLM_RUNNER)
importlib.import_module("local_worker.engine.vllm.executor")
start_ranks_by("fork")
if importlib.import_module("vllm.platforms").current_platform.is_cpu():
    lighten()

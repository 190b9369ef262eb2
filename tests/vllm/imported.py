"""vLLM as a worker with one thread imports it: from then on a fork of this process need not import it.

On a CPU it is changed here so that it starts soon and waits asleep. Of itself it imports itself anew for each rank and
for each architecture that it sees for the first time, which takes 10 s of processor time; compiles functions for token
ids and log-probabilities, also if told to compile no model; and computes while it awaits messages and tensors.
"""

import importlib
from functools import partial
from typing import Any

from local_worker.engine.vllm.environment import prepare
from tests.vllm.ranks import start_ranks_by


def lighten() -> None:
    """Let vLLM's processes look at architectures themselves, compile nothing, and send tensors by gloo."""
    compiler: Any = importlib.import_module("torch._dynamo.config")
    architectures: Any = importlib.import_module("vllm.model_executor.models.registry")
    messages: Any = importlib.import_module("vllm.distributed.device_communicators.shm_broadcast")
    tensors: Any = importlib.import_module("vllm.distributed.device_communicators.cpu_communicator")
    architectures._run_in_subprocess = lambda function: function()
    compiler.disable = True
    messages.SpinCondition = partial(messages.SpinCondition, busy_loop_s=0.0)
    tensors.CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False


prepare(threads=1)
importlib.import_module("local_worker.engine.vllm.executor")
start_ranks_by("fork")
if importlib.import_module("vllm.platforms").current_platform.is_cpu():
    lighten()

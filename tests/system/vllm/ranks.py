"""How vLLM's executor starts its ranks on a CPU; otherwise it is vLLM's choice."""

import importlib
import multiprocessing
from functools import partial
from typing import Any, Literal

Method = Literal["fork", "forkserver", "spawn"]


def start_ranks_by(method: Method) -> None:
    """Let vLLM, which spawns ranks on a CPU, start them by this method of multiprocessing.

    A process that has had an engine without further processes can have no forks: they would have state of that engine.
    """
    if importlib.import_module("vllm.platforms").current_platform.is_cpu():
        multiprocessing.set_forkserver_preload(["tests.system.vllm.imported"])
        executor: Any = importlib.import_module("vllm.v1.executor.multiproc_executor")
        executor.get_mp_context = partial(multiprocessing.get_context, method)

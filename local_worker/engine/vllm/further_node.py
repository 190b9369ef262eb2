"""The ranks of a worker on a further node; the worker itself is on the first one."""

import signal
import sys
from collections.abc import Mapping
from typing import Any

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from local_worker.engine.load_errors import reading
from local_worker.engine.vllm.arguments import VllmOptions, engine_config


def compute_for_first_node(model: str, options: VllmOptions, arguments: Mapping[str, Any]) -> None:
    """Compute with this node's ranks until one of them ends, or until SIGTERM, which ends the process with status 0.

    Model, options and arguments, apart from `node_rank`, must be those of the first node. Raises UnsupportedModel as
    VllmEngine does.
    """
    config = engine_config(model, options, arguments, headless=True)
    with reading():
        executor = MultiprocExecutor(config, monitor_workers=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # vLLM ends its processes as this one exits
    executor.start_worker_monitor(inline=True)

"""A worker whose model answers tasks: everything but the engine is the real worker's."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from local_worker.app import make_worker
from local_worker.config import WorkerConfig
from local_worker.model import load_model
from serving.config import load
from serving.environment import ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run
from tests.system.agents.engine import ScriptedEngine


def prepare(argv: Sequence[str]) -> Serving:
    """Load the configuration, whose engine is `fake`, and return the function that serves; raise ConfigError."""
    config = load(WorkerConfig, ServiceName.WORKER, argv, os.environ, prog="python -m tests.system.agents")
    configure_logging(config.log_level)
    model = load_model(config)
    model = replace(model, engine=ScriptedEngine(config.choice.step_seconds, model.block_tokens, model.sandbox))

    async def serve(stop: asyncio.Event) -> None:
        await make_worker(config, model).run(stop)

    return serve


def main(argv: Sequence[str]) -> int:
    """Run the worker with the arguments `argv`, and return the exit status."""
    return run(prepare, argv)

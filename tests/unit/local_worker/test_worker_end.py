"""A worker whose backend fails ends, so that gateways place its calls again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.v1 import scheduler_pb2
from local_worker import sizes
from local_worker.app import make_batcher
from local_worker.backend import Backend
from local_worker.config import WorkerConfig
from local_worker.engine_backend import EngineBackend
from local_worker.loop import EngineLoop
from local_worker.model import load_model
from local_worker.prompt_encoder import PromptEncoder
from local_worker.worker import Worker
from tests.services import SECRET

Deliver = Callable[[Any], None]
Died = Callable[[BaseException], None]


@pytest.mark.parametrize("is_lost", [False, True], ids=["it dies", "its events cannot be delivered"])
async def test_a_worker_ends_with_its_backend(is_lost: bool) -> None:
    config = WorkerConfig(engine="fake", secret=SECRET, listen="127.0.0.1:0", scheduler="127.0.0.1:1")
    model = load_model(config)
    limits = sizes.limits(config, model.device, model.longest, model.block_tokens)
    batcher = make_batcher(config, model, limits)
    prompts = PromptEncoder(
        model.tokenizer, model.vocab_size, model.block_tokens, config.secret, model.revisions, limits.max_prompt_tokens
    )
    ports: list[tuple[Deliver, Died]] = []

    def make_backend(deliver: Deliver, died: Died) -> Backend:
        ports.append((deliver, died))
        return EngineBackend(prompts, model.tokenizer, None, EngineLoop(batcher, model.engine, deliver, died))

    info = scheduler_pb2.ModelInfo(name="tiny", kv_tokens=model.kv_tokens, max_running=limits.max_running)
    worker = Worker(config, [info], batcher.queue.policy, make_backend)
    running, [(deliver, died)] = asyncio.create_task(worker.run(asyncio.Event())), ports
    deliver(None) if is_lost else died(MemoryError("no room"))
    with pytest.raises(RuntimeError, match="backend: " + ("AttributeError" if is_lost else "MemoryError")):
        await running

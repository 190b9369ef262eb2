"""The worker's composition root: it creates the objects that live as long as the process."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.v1 import scheduler_pb2
from local_worker import sizes
from local_worker.backend import Backend
from local_worker.config import WorkerConfig
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.batcher import Batcher
from local_worker.core.events import WorkerUpdate
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.policies import POLICIES, ClassedPolicy, QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.engine_backend import EngineBackend
from local_worker.loop import EngineLoop
from local_worker.model import ServedModel, load_model
from local_worker.prompt_encoder import PromptEncoder
from local_worker.worker import Worker
from serving.config import cost_function, load
from serving.cost import cost_name
from serving.environment import ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run


def make_batcher(config: WorkerConfig, model: ServedModel, limits: BatchLimits) -> Batcher:
    """Build the batcher, with its policy and cache, that `config` and `limits` describe."""
    cost = cost_function(config.cost)
    together = limits.max_running * model.longest
    quantum = sizes.quantum_tokens(config, model.device)
    policy = ClassedPolicy(
        POLICIES[config.policy],
        QueuePolicyConfig(
            quantum_tokens=quantum,
            cost=cost,
            max_input_tokens=limits.max_prompt_tokens,
            max_output_tokens=model.longest,
            block_tokens=model.block_tokens,
            levels=FairnessLevels.parse(config.fairness_levels),
            most_debt_tokens=config.preemption_quanta * quantum,
            most_uncharged_tokens=limits.max_running * (1 + model.engine.ahead),
            most_output_tokens=together
            if limits.admission is AdmissionMode.OPTIMISTIC
            else min(together, model.kv_tokens),
        ),
    )
    cache = PrefixCache(model.kv_tokens // model.block_tokens, model.block_tokens)
    return Batcher(
        RequestQueue(policy, cache, cost, limits), model.tokenizer.eos_token_ids, step_seconds=config.step_seconds
    )


def make_worker(config: WorkerConfig, model: ServedModel) -> Worker:
    """Build the worker that computes with `model`; to be called on the event loop."""
    limits = sizes.limits(config, model.device, model.longest, model.block_tokens)
    batcher = make_batcher(config, model, limits)
    prompts = PromptEncoder(
        model.tokenizer, model.vocab_size, model.block_tokens, config.secret, model.revisions, limits.max_prompt_tokens
    )

    def make_backend(deliver: Callable[[WorkerUpdate], None], died: Callable[[BaseException], None]) -> Backend:
        return EngineBackend(prompts, model.tokenizer, model.sandbox, EngineLoop(batcher, model.engine, deliver, died))

    models = [_model_info(config, name, model, limits) for name in model.revisions]
    return Worker(config, models, batcher.queue.policy, make_backend)


def _model_info(config: WorkerConfig, name: str, model: ServedModel, limits: BatchLimits) -> scheduler_pb2.ModelInfo:
    return scheduler_pb2.ModelInfo(
        name=name,
        max_model_tokens=model.longest,
        max_prompt_tokens=limits.max_prompt_tokens,
        vocab_size=model.vocab_size,
        longest_token=model.tokenizer.longest_token,
        block_tokens=model.block_tokens,
        kv_tokens=model.kv_tokens,
        max_running=limits.max_running,
        revision=model.revisions[name],
        engine=model.engine_name,
        policy=config.policy,
        admission=config.admission,
        cost=cost_name(cost_function(config.cost)),
    )


def prepare(argv: Sequence[str], **constants: Any) -> Serving:
    """Load the configuration and the model, and return the function that serves; raise ConfigError."""
    config = load(WorkerConfig, ServiceName.WORKER, argv, os.environ, prog="python -m local_worker", **constants)
    configure_logging(config.log_level)
    model = load_model(config)

    async def serve(stop: asyncio.Event) -> None:
        await make_worker(config, model).run(stop)

    return serve


main = partial(run, prepare)

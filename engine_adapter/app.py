"""The adapter's composition root: a worker whose backend is an engine that serves."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

from engine_adapter.backend import AdapterBackend, FollowerFactory
from engine_adapter.config import AdapterConfig
from engine_adapter.engine_api import EngineAway, EngineInfo
from engine_adapter.engine_claims import check_info
from engine_adapter.tokenizer import EngineTokenizer
from engine_adapter.vllm_api import VllmApi
from fairlead.v1 import scheduler_pb2
from local_worker.backend import Backend
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.engine_cache import EngineCache
from local_worker.core.events import WorkerUpdate
from local_worker.core.external import ExternalBatch, ExternalQueue, LongPrompts
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.policies import WHOLE_POLICIES, ClassedPolicy, QueuePolicyConfig
from local_worker.prompt_encoder import PromptEncoder
from local_worker.sizes import MAX_WAITING_PER_CLIENT, quantum_tokens
from local_worker.worker import Worker
from serving.config import MOST, cost_function, load, require
from serving.core.long_misses import PARTS
from serving.cost import cost_name
from serving.environment import ServiceName
from serving.http_client import HttpClient
from serving.logs import configure_logging
from serving.process import Serving, log_step, run

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
VOCAB_SIZE = MOST  # of an engine, which does not tell: it refuses ids that are not in its vocabulary


def make_adapter(
    config: AdapterConfig, api: VllmApi, info: EngineInfo, make_follower: FollowerFactory | None
) -> Worker:
    """Build the worker that hands its requests to the engine behind `api`; to be called on the event loop."""
    tokenizer = EngineTokenizer(api, info.model, asyncio.get_running_loop())
    cost, kv_tokens = cost_function(config.cost), info.pages * info.block_tokens
    longest = min(info.max_model_tokens, kv_tokens)
    limits = BatchLimits(
        max_running=config.max_running,
        token_budget=config.token_budget,
        max_prompt_tokens=config.max_prompt_tokens or max(1, longest - info.block_tokens),
        max_waiting=config.max_waiting,
        max_waiting_per_client=MAX_WAITING_PER_CLIENT,
    )
    policy = ClassedPolicy(
        WHOLE_POLICIES[config.policy],
        QueuePolicyConfig(
            quantum_tokens=quantum_tokens(config, "cuda"),
            cost=cost,
            max_input_tokens=limits.max_prompt_tokens,
            max_output_tokens=longest,
            block_tokens=info.block_tokens,
            levels=FairnessLevels.parse(config.fairness_levels),
            most_output_tokens=min(limits.max_running * longest, kv_tokens),
        ),
    )
    long_prompts = LongPrompts.of(info.long_prefill_tokens, info.caches_prefixes, limits.token_budget)
    if long_prompts is LongPrompts.WHOLE:
        _warn_of_long_prompts(info, limits.token_budget)
    cache = EngineCache(info.pages, info.block_tokens)
    batch = ExternalBatch(ExternalQueue(policy, cache, cost, limits, long_prompts))
    model = scheduler_pb2.ModelInfo(
        name=info.model,
        max_model_tokens=longest,
        max_prompt_tokens=limits.max_prompt_tokens,
        vocab_size=VOCAB_SIZE,
        longest_token=tokenizer.longest_token,
        block_tokens=info.block_tokens,
        kv_tokens=kv_tokens,
        max_running=limits.max_running,
        revision=f"{info.root.replace('@', '_')}.served",
        engine=f"{info.engine}, adapted",
        policy=config.policy,
        admission=AdmissionMode.RESERVE,
        cost=cost_name(cost),
    )
    prompts = PromptEncoder(
        tokenizer,
        VOCAB_SIZE,
        info.block_tokens,
        config.secret,
        {model.name: model.revision},
        limits.max_prompt_tokens,
        has_public_blocks=False,  # the engine keeps the blocks of each cache scope apart
    )

    def make_backend(deliver: Callable[[WorkerUpdate], None], died: Callable[[BaseException], None]) -> Backend:
        return AdapterBackend(api, info, make_follower, prompts, batch, deliver, died)

    return Worker(config, [model], policy, make_backend, config.engine_address, config.picker_names)


def _warn_of_long_prompts(info: EngineInfo, token_budget: int) -> None:
    """Log a warning of an engine that says that a prompt can take whole steps, and may cache nothing."""
    log.warning(
        "a long prompt at the engine delays all users",
        extra={
            "threshold": info.long_prefill_tokens,
            "remedy": f"vllm serve --long-prefill-token-threshold {token_budget // PARTS}",
        },
    )


def _follower_factory(config: AdapterConfig) -> FollowerFactory | None:
    """Return the factory of followers of the engine's events, None without addresses; raise ConfigError."""
    if not config.kv_events:
        return None
    require(find_spec("zmq") is not None, "kv_events: needs pyzmq: pip install 'fairlead-serving[adapter]'")
    from serving.kv_events.follower import KvFollower

    events, replay = [*config.kv_event_addresses, ""][:2]
    return partial(KvFollower, events, replay)


async def await_engine(address: str, api: VllmApi, stop: asyncio.Event) -> EngineInfo | None:
    """Return what the engine is at `address` once it serves; None if `stop` is set before."""
    log_step(f"waiting for the engine {address}")
    reason = ""
    while not stop.is_set():
        try:
            info = await api.describe()
            check_info(info)
            return info
        except EngineAway as error:
            if str(error) != reason:
                reason = str(error)
                log_step(f"waiting for the engine {address}: {reason}")
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
    return None


def prepare(argv: Sequence[str]) -> Serving:
    """Load the configuration and return the function that serves; raise ConfigError."""
    config = load(AdapterConfig, ServiceName.ADAPTER, argv, os.environ, prog="python -m engine_adapter")
    configure_logging(config.log_level)
    make_follower = _follower_factory(config)

    async def serve(stop: asyncio.Event) -> None:
        api = VllmApi(HttpClient(config.engine_address, config.engine_api_key))
        info = await await_engine(config.engine_address, api, stop)
        if info is not None:
            await make_adapter(config, api, info, make_follower).run(stop)

    return serve


main = partial(run, prepare)

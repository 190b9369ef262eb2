"""The worker's composition root: configuration, and the objects that live as long as the process."""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.config import ConfigError, load, option, require
from fairlead.cost import WeightedTokens
from fairlead.process import configure_logging, run
from fairlead.rpc.server import Server
from fairlead.v1 import scheduler_pb2, worker_pb2, worker_pb2_grpc
from local_worker.attachment import Attachment
from local_worker.core.batch import Engine
from local_worker.core.batcher import Batcher, Limits
from local_worker.core.policies import POLICIES, PolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.loop import EngineLoop, Outbox
from local_worker.prompts import Prompts
from local_worker.service import TokenizerService, WorkerService
from local_worker.tokenizer import Tokenizer

log = logging.getLogger(__name__)
MIN_SECRET = 16
WILDCARDS = ("", "0.0.0.0", "[::]")
DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """See fairlead.config for where values come from."""

    listen: str = option("127.0.0.1:7100", "address to listen on, host:port; port 0 picks a free one")
    advertise: str = option("", "address that gateways reach this worker at; default: the one listened on")
    scheduler: str = option("127.0.0.1:7050", "address of the global scheduler")
    secret: str = option("", "the cluster secret, at least 16 characters")
    name: str = option("", "stable name of this worker; default: host name and port")
    engine: str = option(
        "transformers", "what computes: a model, or a deterministic stand-in", choices=("transformers", "fake")
    )
    fake_step_seconds: float = option(0.0, "how long a step of the fake engine takes")
    model: str = option(DEFAULT_MODEL, "the built-in model's name, a local path or a hub id")
    served_name: str = option("", "the name that requests use; default: the last part of the model's path or id")
    threads: int = option(os.cpu_count() or 1, "compute threads of the engine")
    kv_tokens: int = option(8192, "capacity of the KV cache in tokens")
    block_tokens: int = option(16, "tokens per block and KV page")
    max_prompt_tokens: int = option(4096, "longest prompt accepted (L_input of the bounds)")
    max_running: int = option(32, "most requests in a batch")
    token_budget: int = option(256, "most tokens computed per step: longer prompts are prefilled in chunks")
    max_waiting: int = option(4096, "most requests in the queue")
    max_waiting_per_client: int = option(1024, "most requests of one client in the queue")
    policy: str = option("dlpm", "the queue policy", choices=tuple(POLICIES))
    quantum_tokens: int = option(512, "Q^u: service that a refill grants, in cost units")
    drain_seconds: float = option(20.0, "how long running requests may take to finish after SIGTERM")
    log_level: str = option("info", "least severity logged", choices=("debug", "info", "warning", "error"))

    def __post_init__(self) -> None:
        require(len(self.secret) >= MIN_SECRET, f"secret: needs at least {MIN_SECRET} characters (FAIRLEAD_SECRET)")
        positive = ("kv_tokens", "block_tokens", "max_prompt_tokens", "max_running", "token_budget", "quantum_tokens")
        for name in (*positive, "threads", "max_waiting", "max_waiting_per_client"):
            require(getattr(self, name) > 0, f"{name}: must be above 0, got {getattr(self, name)}")
        require(
            self.kv_tokens % self.block_tokens == 0,
            f"kv_tokens: must be a multiple of block_tokens ({self.block_tokens}), got {self.kv_tokens}",
        )

        require(
            self.advertise != "" or self.listen.rpartition(":")[0] not in WILDCARDS,
            f"advertise: must be given, since gateways cannot reach a worker at {self.listen}",
        )

    @property
    def model_name(self) -> str:
        """What requests call the model."""
        return self.served_name or self.model.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Model:
    """An engine with what belongs to its model."""

    engine: Engine
    tokenizer: Tokenizer
    vocab_size: int
    max_model_tokens: int


def load_model(config: WorkerConfig) -> Model:
    """Load what `config.engine` names. The worker's heavy imports happen here, so that the fake needs none of them."""
    if config.engine == "fake":
        from local_worker.engine.fake import FakeEngine
        from local_worker.tokenizer import ByteTokenizer

        bytes_ = ByteTokenizer()
        engine = FakeEngine(bytes_.vocab_size, config.fake_step_seconds)
        return Model(engine, bytes_, bytes_.vocab_size, max_model_tokens=config.kv_tokens)
    from local_worker.engine.model_files import resolve
    from local_worker.engine.runner import TransformersEngine
    from local_worker.tokenizer import HuggingFaceTokenizer

    path = resolve(config.model)
    runner = TransformersEngine.load(
        path, kv_tokens=config.kv_tokens, block_tokens=config.block_tokens, threads=config.threads
    )
    return Model(runner, HuggingFaceTokenizer.load(path), runner.vocab_size, runner.max_model_tokens)


def make_batcher(config: WorkerConfig, model: Model) -> Batcher:
    """The core, as configured."""
    cost = WeightedTokens()
    policy = POLICIES[config.policy](
        PolicyConfig(
            quantum_tokens=config.quantum_tokens,
            cost=cost,
            max_input_tokens=config.max_prompt_tokens,
            kv_tokens=config.kv_tokens,
        )
    )
    limits = Limits(
        max_running=config.max_running,
        token_budget=config.token_budget,
        max_prompt_tokens=config.max_prompt_tokens,
        max_waiting=config.max_waiting,
        max_waiting_per_client=config.max_waiting_per_client,
    )
    cache = PrefixCache(config.kv_tokens // config.block_tokens, config.block_tokens)
    return Batcher(policy, cache, cost, limits, model.tokenizer.eos_token_ids)


class Worker:
    """One process's objects and their order of start and end."""

    def __init__(self, config: WorkerConfig, model: Model) -> None:
        self._config = config
        self._event_loop = asyncio.get_running_loop()
        self._loop_end: asyncio.Future[None] = self._event_loop.create_future()
        self._batcher = make_batcher(config, model)
        self._engine_loop = EngineLoop(self._batcher, model.engine, self._hand_over, self._loop_died)
        prompts = Prompts(model.tokenizer, model.vocab_size, config.block_tokens, config.secret, config.model_name)
        self._service = WorkerService(prompts, self._engine_loop)
        self._server = Server(config.listen, secret=config.secret)
        self._server.add(worker_pb2_grpc.add_WorkerServicer_to_server, self._service, _name("Worker"))
        self._server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, TokenizerService(prompts), _name("Tokenizer"))
        address = config.advertise or f"{config.listen.rpartition(':')[0]}:{self._server.port}"
        self._attachment = Attachment(
            scheduler=config.scheduler,
            secret=config.secret,
            worker=config.name or f"{socket.gethostname()}-{self._server.port}",
            address=address,
            model=self._model_info(model),
            snapshot=self._batcher.cache.snapshot,
            drain=self.begin_drain,
        )
        self._healthy = True
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then drain."""
        self._stop = stop
        self._engine_loop.start()
        await self._server.start()
        log.info("listening", extra={"service": "local_worker", "port": self._server.port})
        attachment = asyncio.create_task(self._attachment.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await self._server.set_ready(True)
            ends: list[asyncio.Future[Any]] = [attachment, self._loop_end, stopping]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            await self._finish()
        finally:
            attachment.cancel()
            self._engine_loop.stop()

    def begin_drain(self) -> None:
        """The scheduler asks this worker to leave: the same as SIGTERM."""
        self._stop.set()

    async def _finish(self) -> None:
        log.info("draining")
        self._attachment.draining = True
        await self._server.set_ready(False)
        try:
            async with asyncio.timeout(self._config.drain_seconds):
                await self._service.drain()
        except TimeoutError:
            log.warning("drain timed out: gateways re-dispatch what is left")
        await self._server.stop(grace=1.0)

    def _loop_died(self, error: BaseException) -> None:
        self._event_loop.call_soon_threadsafe(self._loop_end.set_exception, RuntimeError(f"engine loop: {error!r}"))

    def _hand_over(self, out: Outbox) -> None:
        self._event_loop.call_soon_threadsafe(self._delivered, out)

    def _delivered(self, out: Outbox) -> None:
        self._service.deliver(out)
        self._attachment.deliver(out)
        if out.healthy != self._healthy:
            self._healthy = out.healthy
            self._event_loop.create_task(self._server.set_ready(out.healthy))

    def _model_info(self, model: Model) -> scheduler_pb2.ModelInfo:
        bound = self._batcher.policy.bound_micro
        return scheduler_pb2.ModelInfo(
            name=self._config.model_name,
            max_model_tokens=min(model.max_model_tokens, self._config.kv_tokens),
            max_prompt_tokens=self._config.max_prompt_tokens,
            vocab_size=model.vocab_size,
            block_tokens=self._config.block_tokens,
            kv_tokens=self._config.kv_tokens,
            max_running=self._config.max_running,
            policy=self._config.policy,
            fairness_bound=0.0 if bound is None else bound / 1e6,
        )


def _name(service: str) -> str:
    return str(worker_pb2.DESCRIPTOR.services_by_name[service].full_name)


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    try:
        config = load(WorkerConfig, argv, os.environ, prog="python -m local_worker")
    except ConfigError as error:
        raise SystemExit(f"configuration: {error}") from error
    configure_logging(config.log_level)
    model = load_model(config)

    async def service(stop: asyncio.Event) -> None:
        await Worker(config, model).run(stop)

    return run(service)

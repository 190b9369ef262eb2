"""An engine over vLLM's executor: vLLM computes batches on one or many devices; the batcher decides what they contain.

vLLM's scheduler and its prefix cache do not run. vLLM samples a token as soon as a request's known tokens are computed,
which is when its slice `samples`.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from vllm.config import ModelConfig, ParallelConfig
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.version import __version__

from local_worker.core.batch import Batch, EngineLost, Entry, SampledLogprobs, Slice, StepResult
from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.load_errors import reading
from local_worker.engine.lora_adapter import LoraAdapter
from local_worker.engine.matchers import Matchers, TokenMasks
from local_worker.engine.vllm.arguments import VllmOptions, engine_config
from local_worker.engine.vllm.replaced_pages import replace_pages, take_replaced
from local_worker.engine.vllm.sampler import allow
from local_worker.engine.vllm.sent_requests import RESERVED, SentRequests, request_id
from local_worker.sandbox import Sandbox
from serving.sampling_params import SamplingParams

log = logging.getLogger(__name__)


def device_of_vllm() -> str:
    """Return the kind of device for which the installed vLLM was built: "cpu", "cuda" or another."""
    return str(current_platform.device_type)


@dataclass(frozen=True, slots=True)
class ExecutorStep:
    """A PendingStep that vLLM's processes compute; the result of `computed` is None if the tokens are in `sampled`."""

    computed: Future[ModelRunnerOutput | None]
    told: Sequence[Future[Any]]  # whether all processes have the masks and the replaced pages, if there are any
    sampled: Future[ModelRunnerOutput]
    slices: Sequence[Slice]  # those of the batch
    masks: TokenMasks  # those of the constrained outputs

    def wait(self) -> StepResult:
        """Return the samples; see PendingStep. Raises EngineLost after any error."""
        try:
            return self.result()
        except Exception as error:
            raise EngineLost("vLLM's executor failed") from error

    def result(self) -> StepResult:
        """Return the samples; raise vLLM's own error."""
        computed, sampled = self.computed.result(), self.sampled.result()
        for done in self.told:
            done.result()
        output = sampled if computed is None else computed
        pieces = [piece for piece in self.slices if piece.samples]
        rows = [output.req_id_to_index[request_id(piece.request)] for piece in pieces]
        tokens = tuple(int(output.sampled_token_ids[row][0]) for row in rows)
        scores = tuple(_scores(output, piece) for piece in self.slices if piece.scored)
        found = output.logprobs
        if found is None:
            return StepResult(tokens, (), scores, *self.masks[1:])
        entries = (_entry(found, row, piece.sampling.logprobs) for row, piece in zip(rows, pieces, strict=True))
        return StepResult(tokens, tuple(entries), scores, *self.masks[1:])


class VllmEngine:
    """An engine that runs ahead where vLLM computes in processes of their own (the backend `mp`).

    These take a token that the host does not know yet from their own samples. The first stages of a pipeline do not
    sample: they are sent each token, so a pipeline does not run ahead. Nor does vLLM in the worker's own process, where
    it returns from a call when the step is computed.
    """

    version = __version__

    def __init__(
        self, model: str, options: VllmOptions, arguments: Mapping[str, Any], sandbox: Sandbox | None = None
    ) -> None:
        """Start vLLM's executor for a folder or hub id, with more `arguments` of vLLM; without `sandbox`, no request
        has a constraint.

        Raises UnsupportedModel for a model or an argument that vLLM or this engine does not support.
        """
        config = engine_config(model, options, arguments)
        self._failed = threading.Event()  # set by a thread of vLLM that watches its processes
        with reading():
            _check_implementation(config.model_config, arguments)
            if options.kv_tokens is not None:
                pages = options.kv_tokens // config.cache_config.block_size
                config.cache_config.num_gpu_blocks_override = pages + RESERVED
            self._core = EngineCore(config, Executor.get_class(config), False, self._failed.set)
        self._executor: Executor = self._core.model_executor
        self._sent = SentRequests()
        self._takes_tables = options.runner == "v1"
        self._matchers = Matchers(sandbox)
        self._step: ExecutorStep | None = None  # the last one
        try:
            self._check_cache()
            with reading():
                if config.parallel_config.pipeline_parallel_size > 1:
                    # Later stages get their buffers from it: on a CPU vLLM runs none by itself unless it compiles.
                    self._executor.execute_dummy_batch()
                self._probe()
                self._load(options.adapters)
        except UnsupportedModel:
            self.close()
            raise
        self.ahead = _ahead(config.parallel_config)
        self.block_tokens: int = config.cache_config.block_size
        self.kv_tokens: int = (config.cache_config.num_gpu_blocks - RESERVED) * self.block_tokens
        self.max_model_tokens: int = config.model_config.max_model_len
        self.vocab_size: int = config.model_config.get_vocab_size()
        log.info(
            "model loaded",
            extra={
                "vllm": self.version,
                "processes": config.parallel_config.world_size,
                "dtype": str(config.model_config.dtype),
                "block_tokens": self.block_tokens,
                "kv_tokens": self.kv_tokens,
            },
        )

    def _check_cache(self) -> None:
        """Raise UnsupportedModel unless one table of pages describes the whole state of a request."""
        groups = self._core.scheduler.kv_cache_config.kv_cache_groups
        kinds = ", ".join(type(group.kv_cache_spec).__name__ for group in groups)
        if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, AttentionSpec):
            raise UnsupportedModel(f"it must have one kind of KV cache, that of attention; it has {kinds or 'none'}")

    def _probe(self) -> None:
        """Compute one token, because vLLM finds some models' shapes unsupported only then."""
        sampling = SamplingParams(max_tokens=1)
        piece = Slice(0, (0,), 0, 1, (0,), samples=True, sampling=sampling, prompt_tokens=1)
        self._start(Batch((piece,), entered=(Entry(0, (0,)),))).result()
        self._executor.execute_model(self._sent.scheduler_output(Batch((), left=(0,))))

    def _load(self, adapters: Sequence[LoraAdapter]) -> None:
        """Load the adapters now, so that one that vLLM cannot use fails no step."""
        for number, adapter in enumerate(adapters, 1):
            request = self._sent.adapters[adapter.name] = LoRARequest(adapter.name, number, str(adapter.folder))
            self._executor.add_lora(request)

    def launch(self, batch: Batch) -> ExecutorStep:
        """Start to compute the batch; see Engine. Raises EngineLost after any error: the state in vLLM's processes is
        not known then."""
        try:
            return self._start(batch)
        except Exception as error:
            raise EngineLost("vLLM's executor failed") from error

    def check(self) -> None:
        """Raise EngineLost if one of vLLM's processes has ended; see Engine."""
        if self._failed.is_set():
            raise EngineLost("a process of vLLM has ended")

    def close(self) -> None:
        """End the executor's processes; see Engine."""
        self._core.shutdown()
        self._matchers.close()

    def _start(self, batch: Batch) -> ExecutorStep:
        self._matchers.follow(batch)
        output, told = self._sent.scheduler_output(batch), []
        if not self._takes_tables and (replaced := take_replaced(output.scheduled_cached_reqs)):
            told.append(self._executor.collective_rpc(replace_pages, args=(replaced,), non_block=True))
        computed = self._executor.execute_model(output, non_block=True)
        pieces = [piece for piece in batch.slices if piece.samples]
        depends = self._step is not None and self._matchers.needs_samples(pieces)
        before = self._step.result().tokens if depends and self._step else ()  # awaited while the step is computed
        masks = self._matchers.masks(pieces, before)
        if masks.allowed:
            allowed = {pieces[row].request: mask for row, mask in masks.allowed.items()}
            told.append(self._executor.collective_rpc(allow, args=(allowed,), non_block=True))
        sampled = self._executor.sample_tokens(None, non_block=True)
        self._step = ExecutorStep(computed, told, sampled, batch.slices, masks)
        return self._step


def _ahead(parallel: ParallelConfig) -> int:
    return 1 if parallel.distributed_executor_backend == "mp" and parallel.pipeline_parallel_size == 1 else 0


def _check_implementation(model: ModelConfig, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for a model that vLLM computes with transformers' code, unless the operator asks for that.

    With GPT-NeoX vLLM's tokens were then others than those of `generate`.
    """
    if model.using_transformers_backend() and "model_impl" not in arguments:
        names = ", ".join(model.architectures)
        raise ValueError(f"vLLM has no code of its own for {names}: take the engine transformers, or give model_impl")


def _entry(found: LogprobsLists, row: int, alternatives: int | None) -> SampledLogprobs | None:
    """Return the log-probabilities in `row`: the first is the sampled token's, the others are sorted."""
    if alternatives is None:
        return None
    ids, values = found.logprob_token_ids[row].tolist(), found.logprobs[row].tolist()
    return SampledLogprobs(values[0], tuple(zip(ids[1:], values[1:], strict=True))[:alternatives])


def _scores(output: ModelRunnerOutput, piece: Slice) -> tuple[SampledLogprobs, ...]:
    """Return the log-probabilities of a prompt, which vLLM reports with the last of its slices; none before."""
    found = output.prompt_logprobs_dict.get(request_id(piece.request))
    if found is None:
        return ()
    count = piece.sampling.prompt_logprobs or 0
    rows = zip(found.logprob_token_ids.tolist(), found.logprobs.tolist(), strict=True)
    return tuple(
        SampledLogprobs(values[0], tuple(zip(ids[1:], values[1:], strict=True))[:count]) for ids, values in rows
    )

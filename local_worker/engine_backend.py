"""The backend that is Fairlead's own: a batcher and an engine, driven by the engine loop."""

import itertools
import time

from fairlead.errors import InvalidRequest
from fairlead.v1 import worker_pb2
from local_worker.core.job import Job
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.loop import EngineLoop
from local_worker.prompt_encoder import PromptEncoder
from local_worker.step_events import Sink
from serving.blocks import unpack_digests
from serving.cost import MAX_WEIGHT, weight_thousandths
from serving.wire import sampling_from_proto


class EngineBackend:
    """See Backend. Messages become jobs here, on the event loop's thread."""

    def __init__(self, prompts: PromptEncoder, loop: EngineLoop) -> None:
        self._prompt_encoder = prompts
        self._loop = loop
        self._arrivals = itertools.count()

    def start(self) -> None:
        """See Backend."""
        self._loop.start()

    def stop(self) -> None:
        """See Backend."""
        self._loop.stop()

    def encode(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        """See Backend."""
        return self._prompt_encoder.encode(request)

    def submit(self, sink: Sink, submit: worker_pb2.Submit) -> None:
        """See Backend. Refuses what no gateway of ours sends: an internal message is checked all the same."""
        self._loop.submit(self._job(sink, submit))

    def abort(self, sink: Sink, request_id: str, attempt: int) -> None:
        """See Backend."""
        self._loop.abort(sink, request_id, attempt)

    def abort_all(self, sink: Sink) -> None:
        """See Backend."""
        self._loop.abort_all(sink)

    def flush_cache(self) -> None:
        """See Backend."""
        self._loop.flush_cache()

    @property
    def stepping_since(self) -> float | None:
        """See Backend."""
        return self._loop.stepping_since

    def _job(self, sink: Sink, submit: worker_pb2.Submit) -> Job[Sink]:
        model = self._prompt_encoder.model(submit.model)
        ids = self._prompt_encoder.check_ids(submit.token_ids, "token_ids")
        if submit.generated_tokens >= len(ids):
            raise InvalidRequest(
                f"must be below the {len(ids)} token ids, got {submit.generated_tokens}", "generated_tokens"
            )
        if not 0 < submit.weight <= MAX_WEIGHT:
            raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT}, got {submit.weight}", "weight")
        sampling = sampling_from_proto(submit.sampling)
        if submit.public_tokens > len(ids):
            raise InvalidRequest(
                f"must be at most the {len(ids)} token ids, got {submit.public_tokens}", "public_tokens"
            )
        chain = self._prompt_encoder.chain(submit.token_ids, model, submit.cache_scope, submit.public_tokens)
        request = Request(
            id=submit.request_id,
            client=submit.client,
            model=model,
            tokens=ids,
            prompt_tokens=len(ids),
            digests=list(unpack_digests(chain.digests)),
            chain_seed=chain.seed,
            public_blocks=chain.public_blocks,
            sampling=sampling,
            arrival=next(self._arrivals),
            system_tokens=submit.system_tokens,
            weight=weight_thousandths(submit.weight),
            seed_position=submit.generated_tokens,
            in_interaction=submit.in_interaction,
            paid=submit.charged,
            deadline=time.monotonic() + submit.timeout_seconds if submit.timeout_seconds > 0 else None,
        )
        generated = ids[len(ids) - submit.generated_tokens :]
        return Job(
            owner=sink,
            request=request,
            attempt=submit.attempt,
            text=OutputText(self._prompt_encoder.tokenizer.decoder(), sampling.stop, generated),
            queued_at=time.monotonic(),
        )

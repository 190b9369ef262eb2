"""Fairlead's own backend: a batcher and an engine, driven by the engine loop."""

import itertools
import time

from fairlead.errors import InvalidRequest
from local_worker.attempt import Submission
from local_worker.core.job import Job
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.loop import EngineLoop
from local_worker.prompt import EncodedPrompt, PromptToEncode
from local_worker.prompt_encoder import PromptEncoder
from local_worker.step_events import Sink
from serving.blocks import unpack_digests
from serving.cost import MAX_WEIGHT, weight_thousandths


class EngineBackend:
    """The backend that runs an EngineLoop. Submissions become jobs here, on the event loop's thread. See Backend."""

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

    def encode(self, prompt: PromptToEncode) -> EncodedPrompt:
        """See Backend."""
        return self._prompt_encoder.encode(prompt)

    def decode(self, token_ids: bytes, model: str) -> str:
        """See Backend."""
        return self._prompt_encoder.decode(token_ids, model)

    def submit(self, sink: Sink, submission: Submission) -> None:
        """Check and queue a request; see Backend. The checks detect gateways that send invalid values."""
        self._loop.submit(self._job(sink, submission))

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

    def _job(self, sink: Sink, submission: Submission) -> Job[Sink]:
        model = self._prompt_encoder.model(submission.model)
        ids = self._prompt_encoder.check_ids(submission.token_ids, "token_ids")
        if submission.generated_tokens >= len(ids):
            raise InvalidRequest(
                f"must be below the number of token ids, {len(ids)}; got {submission.generated_tokens}",
                "generated_tokens",
            )
        if not 0 < submission.weight <= MAX_WEIGHT:
            raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT}, got {submission.weight}", "weight")
        if submission.public_tokens > len(ids):
            raise InvalidRequest(
                f"must be at most the number of token ids, {len(ids)}; got {submission.public_tokens}", "public_tokens"
            )
        chain = self._prompt_encoder.chain(
            submission.token_ids, model, submission.cache_scope, submission.public_tokens
        )
        now = time.monotonic()
        request = Request(
            id=submission.request_id,
            client=submission.client,
            model=model,
            tokens=ids,
            prompt_tokens=len(ids),
            digests=list(unpack_digests(chain.digests)),
            chain_seed=chain.seed,
            public_blocks=chain.public_blocks,
            sampling=submission.sampling,
            arrival=next(self._arrivals),
            system_tokens=submission.system_tokens,
            weight=weight_thousandths(submission.weight),
            seed_position=submission.generated_tokens,
            in_interaction=submission.in_interaction,
            paid=submission.charged,
            deadline=None if submission.timeout_seconds is None else now + submission.timeout_seconds,
        )
        generated = ids[len(ids) - submission.generated_tokens :]
        return Job(
            owner=sink,
            request=request,
            attempt=submission.attempt,
            text=OutputText(self._prompt_encoder.tokenizer.decoder(), submission.sampling.stop, generated),
            queued_at=now,
        )

"""Fairlead's own backend: a batcher and an engine, driven by the engine loop."""

import itertools
import time

from fairlead.errors import InvalidRequest
from local_worker.attempt import Submission
from local_worker.constraint_checker import ConstraintChecker
from local_worker.core.job import Job
from local_worker.core.output_text import OutputText
from local_worker.loop import EngineLoop
from local_worker.prompt import EncodedPrompt, PromptToEncode
from local_worker.prompt_encoder import PromptEncoder
from local_worker.sandbox import Sandbox
from local_worker.step_events import Sink
from local_worker.submitted_request import submitted_request
from local_worker.tokenizer import DecodingTokenizer
from serving.constraint import Constraint


class EngineBackend:
    """The backend that runs an EngineLoop. Submissions become jobs here, on the event loop's thread. See Backend."""

    def __init__(
        self, prompts: PromptEncoder, tokenizer: DecodingTokenizer, sandbox: Sandbox | None, loop: EngineLoop
    ) -> None:
        self._prompt_encoder = prompts
        self._tokenizer = tokenizer
        self._checker = ConstraintChecker(sandbox) if sandbox is not None else None
        self._loop = loop
        self._arrivals = itertools.count()

    def start(self) -> None:
        """See Backend."""
        self._loop.start()

    def stop(self) -> None:
        """See Backend."""
        self._loop.stop()
        if self._checker is not None:
            self._checker.close()

    def encode(self, prompt: PromptToEncode) -> EncodedPrompt:
        """See Backend."""
        return self._prompt_encoder.encode(prompt)

    def decode(self, token_ids: bytes, model: str) -> str:
        """See Backend."""
        return self._prompt_encoder.decode(token_ids, model)

    def is_known(self, constraint: Constraint) -> bool:
        """See Backend."""
        return self._checker is None or self._checker.is_known(constraint)

    async def check(self, constraint: Constraint) -> None:
        """See Backend."""
        if self._checker is None:
            raise InvalidRequest("is not supported by this worker's engine", constraint.field)
        await self._checker.check(constraint)

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
        now = time.monotonic()
        request = submitted_request(self._prompt_encoder, submission, next(self._arrivals), now)
        generated = request.tokens[request.prompt_tokens - submission.generated_tokens :]
        return Job(
            owner=sink,
            request=request,
            attempt=submission.attempt,
            text=OutputText(
                self._tokenizer.decoder(), submission.sampling.stop, generated, submission.sampling.min_tokens
            ),
            queued_at=now,
        )

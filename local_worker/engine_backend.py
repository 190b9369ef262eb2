"""Fairlead's own backend: a batcher and an engine, driven by the engine loop."""

from fairlead.errors import InvalidRequest
from local_worker.constraint_checker import ConstraintChecker
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.loop import EngineLoop
from local_worker.prompt_encoder import PromptEncoder
from local_worker.sandbox import Sandbox
from local_worker.tokenizer import DecodingTokenizer
from serving.constraint import Constraint


class EngineBackend:
    """The backend that runs an EngineLoop. See Backend."""

    def __init__(
        self, prompts: PromptEncoder, tokenizer: DecodingTokenizer, sandbox: Sandbox | None, loop: EngineLoop
    ) -> None:
        self.prompts = prompts
        self._tokenizer = tokenizer
        self._checker = ConstraintChecker(sandbox) if sandbox is not None else None
        self._loop = loop

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()
        if self._checker is not None:
            self._checker.close()

    def is_known(self, constraint: Constraint) -> bool:
        return self._checker is None or self._checker.is_known(constraint)

    async def check(self, constraint: Constraint) -> None:
        if self._checker is None:
            raise InvalidRequest("is not supported by this worker's engine", constraint.field)
        await self._checker.check(constraint)

    def submit(self, request: Request) -> None:
        sampling = request.sampling
        generated = request.tokens[request.prompt_tokens - request.seed_position :]
        request.text = OutputText(self._tokenizer.decoder(), sampling.stop, generated, sampling.min_tokens)
        self._loop.submit(request)

    def abort(self, request: Request) -> None:
        self._loop.abort(request)

    def flush_cache(self) -> None:
        self._loop.flush_cache()

    @property
    def stepping_since(self) -> float | None:
        return self._loop.stepping_since

"""The text of one request's output, as the engine sends it."""

from collections.abc import AsyncIterator

from engine_adapter.engine_api import OutputPiece
from engine_adapter.vllm_api import VllmApi
from local_worker.core.output_text import EngineText
from local_worker.core.request import Request
from local_worker.hugging_face_decoder import LONGEST_CHARACTER, REPLACEMENT


class OutputStream:
    """The output of one request, from its first new token.

    A request with tokens of earlier attempts sends them as a part of its prompt. If they end within a character, the
    engine's first text would be wrong, because it decodes what follows its prompt: that text is asked for instead.
    """

    def __init__(self, api: VllmApi, request: Request, model: str) -> None:
        self._api = api
        self._request = request
        self._model = model
        self.text = EngineText(request.sampling.stop, request.sampling.min_tokens)  # of the pieces that were yielded

    async def pieces(self) -> AsyncIterator[OutputPiece]:
        """Compute the request and yield its output; leaving the iterator early aborts it at the engine.

        Raises EngineAway, and EngineRefused for a request that is wrong wherever it goes.
        """
        request = self._request
        generated = request.tokens[request.prompt_tokens - request.seed_position : request.prompt_tokens]
        earlier, held = await self._released(generated)
        self.text.resume(earlier)
        async for piece in self._api.complete(request, self._model):
            if held:
                generated += piece.tokens
                whole, held = await self._released(generated)
                piece = piece._replace(text="" if held else whole[len(earlier) :])
            self.text.decoded(piece.text)
            yield piece

    async def _released(self, generated: list[int]) -> tuple[str, bool]:
        """Return the text that an engine releases with the tokens `generated`, and whether it holds some back.

        It holds back the text of the last tokens until they make whole characters.
        """
        for stop in range(len(generated), max(0, len(generated) - LONGEST_CHARACTER), -1):
            text = await self._api.detokenize(generated[:stop])
            if not text.endswith(REPLACEMENT):
                return text, stop < len(generated)
        start = generated[:-LONGEST_CHARACTER]
        return await self._api.detokenize(start) if start else "", bool(generated)

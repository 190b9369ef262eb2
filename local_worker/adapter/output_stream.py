"""The text of one request's output, as the engine sends it."""

from collections.abc import AsyncIterator

from local_worker.adapter.vllm_api import OutputPiece, VllmApi
from local_worker.core.engine_text import EngineText
from local_worker.core.request import Request
from local_worker.tokenizer import REPLACEMENT


class OutputStream:
    """The output of `request` at the engine, from its first new token.

    A request with tokens of earlier attempts sends them as a part of its prompt. If they end within a character, the
    engine's first text would be wrong, because it decodes what follows its prompt: that text is asked for instead.
    """

    def __init__(self, api: VllmApi, request: Request, text: EngineText, model: str, cache_scope: str) -> None:
        self._api = api
        self._request = request
        self.text = text
        self.heard_at = 0.0  # monotonic time of the latest piece
        self._model = model
        self._cache_scope = cache_scope

    async def pieces(self) -> AsyncIterator[OutputPiece]:
        """Yield the output; raise EngineAway and EngineRefused as `VllmApi.complete` does."""
        request = self._request
        generated = request.tokens[request.prompt_tokens - request.seed_position : request.prompt_tokens]
        whole = await self._api.detokenize(generated) if generated else ""
        earlier = whole.rstrip(REPLACEMENT)
        self.text.resume(earlier)
        is_cut = earlier != whole
        async for piece in self._api.complete(request, self._model, self._cache_scope):
            if is_cut:
                generated += piece.tokens
                whole = await self._api.detokenize(generated)
                is_cut = whole.endswith(REPLACEMENT) and piece.finish is None
                piece = piece._replace(text="" if is_cut else whole[len(earlier) :].rstrip(REPLACEMENT))
            yield piece

"""The text of one request's output of which the engine sends tokens."""

from collections.abc import AsyncIterator, Callable, Collection

from engine_adapter.engine_api import EngineAway, OutputPiece
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request


class DecodedOutput:
    """See EngineOutput. The engine says in a message of its own that the output ends.

    What ended it is not a part of its text, so a piece that may be the last one is yielded with the message after it.
    """

    def __init__(
        self,
        generate: Callable[[Request], AsyncIterator[OutputPiece]],
        request: Request,
        text: OutputText,
        eos_token_ids: Collection[int],
    ) -> None:
        self._generate = generate
        self._request = request
        self.text = text
        sampling = request.sampling
        self._last = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)}

    async def pieces(self) -> AsyncIterator[OutputPiece]:
        """See EngineOutput."""
        left = self._request.sampling.max_tokens
        held = OutputPiece([], "", [], None)
        async for piece in self._generate(self._request):
            left -= len(piece.tokens)
            if left < 0:
                raise EngineAway("the engine generated more tokens than were asked for")
            whole = OutputPiece([*held.tokens, *piece.tokens], "", [*held.logprobs, *piece.logprobs], piece.finish)
            if piece.finish is None and piece.tokens and (left <= 0 or piece.tokens[-1] in self._last):
                held = whole
            else:
                held = OutputPiece([], "", [], None)
                yield whole

"""The end of an output comes with the token that ends it, however the engine groups its messages."""

from collections.abc import AsyncIterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.decoded_output import DecodedOutput
from engine_adapter.engine_api import OutputPiece
from fairlead.outcomes import FinishReason
from local_worker.core.output_text import OutputText
from local_worker.core.request import Request
from local_worker.tokenizer import ByteDecoder
from serving.sampling_params import SamplingParams

EOS, STOP = 256, 9


@given(
    tokens=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    end=st.sampled_from([EOS, STOP, None]),
)
async def test_the_token_that_ends_an_output_comes_with_the_end(
    tokens: list[int], cuts: set[int], end: int | None
) -> None:
    output = [*tokens, end] if end is not None else tokens
    finish = FinishReason.LENGTH if end is None else FinishReason.STOP
    edges = [0, *sorted(cut for cut in cuts if cut < len(output)), len(output)]
    groups = [output[start:stop] for start, stop in pairwise(edges)]

    async def generate(request: Request) -> AsyncIterator[OutputPiece]:
        for group in groups:
            yield OutputPiece(group, "", [], None)
        yield OutputPiece([], "", [], finish)

    sampling = SamplingParams(max_tokens=len(output) + (end is not None), stop_token_ids=(STOP,))
    request = Request(
        id="r",
        client="ann",
        tokens=[1],
        prompt_tokens=1,
        digests=[],
        chain_seed=0,
        sampling=sampling,
        arrival=0,
    )
    pieces = [piece async for piece in DecodedOutput(generate, request, OutputText(ByteDecoder()), (EOS,)).pieces()]
    assert [token for piece in pieces for token in piece.tokens] == output
    assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [finish]
    assert pieces[-1].tokens[-1] == output[-1]
    # Nothing else waits: a piece is late only if its last token may be the end.
    assert all(piece.tokens in groups or {EOS, STOP} & {*piece.tokens} for piece in pieces)

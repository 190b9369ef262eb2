"""One call in progress: an asynchronous iterator of chunks that ends with a completion."""

from collections.abc import AsyncIterator, Callable

from fairlead.blocks import unpack_ids
from fairlead.completion import Chunk, Completion, Timings, TokenLogprobs, Usage
from fairlead.errors import Internal
from fairlead.outcomes import FinishReason
from fairlead.v1 import inference_pb2


class Stream:
    """Iterate for the chunks. `completion` is there afterwards, `accepted` as soon as a worker has begun."""

    def __init__(
        self,
        responses: AsyncIterator[inference_pb2.GenerateResponse],
        on_accepted: Callable[[inference_pb2.Accepted], None],
    ) -> None:
        self.accepted: inference_pb2.Accepted | None = None
        self._finished: inference_pb2.Finished | None = None
        self._responses = responses
        self._on_accepted = on_accepted
        self._text: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Raises the FairleadError of a call that does not complete."""
        async for response in self._responses:
            match response.WhichOneof("event"):
                case "accepted":
                    self.accepted = response.accepted
                    self._on_accepted(response.accepted)
                case "chunk":
                    chunk = _chunk(response.chunk)
                    self._text.append(chunk.text)
                    self._ids += chunk.token_ids
                    self._logprobs += chunk.logprobs
                    yield chunk
                case "finished":
                    self._finished = response.finished

    async def wait(self) -> Completion:
        """The completion, after everything that is still to come."""
        async for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The whole call; raises Internal before its end."""
        accepted, finished = self.accepted, self._finished
        if accepted is None or finished is None:
            raise Internal("the stream has not ended, or ended without saying how")
        usage, timings = finished.usage, finished.timings
        return Completion(
            text="".join(self._text),
            token_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
            finish_reason=FinishReason(finished.finish_reason),
            usage=Usage(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.system_tokens),
            timings=Timings(*(getattr(timings, name) for name in Timings.__slots__)),
            request_id=accepted.request_id,
            model=accepted.model,
            worker=accepted.worker,
        )


def _chunk(chunk: inference_pb2.TokenChunk) -> Chunk:
    logprobs = tuple(
        TokenLogprobs(entry.logprob, tuple(zip(entry.top_ids, entry.top_logprobs, strict=True)))
        for entry in chunk.logprobs
    )
    return Chunk(chunk.text, tuple(unpack_ids(chunk.token_ids.packed)), logprobs)

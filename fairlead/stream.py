"""One call in progress: an asynchronous iterator of chunks that ends with a completion."""

from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self

from fairlead.completion import Chunk, Completion, Timings, TokenLogprobs, Usage
from fairlead.errors import FairleadError, Internal
from fairlead.outcomes import FinishReason
from fairlead.parsed_output import ParsedOutput
from fairlead.responses import Responses
from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, inference_pb2


class Stream:
    """One call in progress: an asynchronous iterator of chunks.

    `accepted` is set as soon as a worker has started; `completion` is available after the iteration. The call is made
    when the iteration begins. It is cancelled if the iteration stops early: by `break`, by an exception, by `cancel` or
    `aclose`, or at the end of an `async with` block.
    """

    def __init__(self, responses: Responses, on_accepted: Callable[[inference_pb2.Accepted], None]) -> None:
        self.accepted: inference_pb2.Accepted | None = None
        self._finished: inference_pb2.Finished | None = None
        self._responses = responses
        self._events = aiter(responses)
        self._on_accepted = on_accepted
        self._output: ParsedOutput | None = None
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: list[TokenLogprobs] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Yield the chunks; raise the FairleadError of a call that does not complete, Cancelled if it was cancelled."""
        try:
            async for response in self._events:
                match response.WhichOneof("event"):
                    case "accepted":
                        self.accepted = response.accepted
                        self._output = ParsedOutput(response.accepted.request_id, response.accepted.output_format)
                        self._on_accepted(response.accepted)
                    case "chunk":
                        chunk = self._known.add(_chunk(response.chunk))
                        self._ids += chunk.token_ids
                        self._logprobs += chunk.logprobs
                        self._prompt_logprobs += chunk.prompt_logprobs
                        yield chunk
                    case "finished":
                        self._finished = response.finished
                        if (rest := self._known.end()) is not None:
                            yield rest
        except FairleadError as error:
            if self.accepted is not None:
                error.request_id = self.accepted.request_id
            raise
        finally:
            # Python closes the generator of an abandoned loop as soon as there is no reference to it.
            self.cancel()

    def cancel(self) -> None:
        """Cancel the call, from any task of its loop: the iteration raises Cancelled. Do nothing after its end."""
        self._responses.cancel()

    async def aclose(self) -> None:
        """Cancel the call; asynchronous generators have a method of this name."""
        self.cancel()

    async def wait(self) -> Completion:
        """Read the rest of the output and return the completion."""
        async for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The result of the whole call; raises Internal before its end."""
        accepted, finished = self.accepted, self._finished
        if accepted is None or finished is None:
            raise Internal("the stream has not ended, or ended without saying how")
        usage, timings = finished.usage, finished.timings
        return Completion(
            text=self._known.text,
            reasoning=self._known.reasoning,
            tool_calls=self._known.tool_calls,
            token_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
            finish_reason=FinishReason(finished.finish_reason),
            usage=Usage(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.system_tokens),
            timings=Timings(*(getattr(timings, name) for name in Timings.__slots__)),
            request_id=accepted.request_id,
            model=accepted.model,
            worker=accepted.worker,
            app=accepted.app,
            prompt_logprobs=tuple(self._prompt_logprobs),
            stop_string=finished.stop_string,
        )

    @property
    def _known(self) -> ParsedOutput:
        if self._output is None:
            raise Internal("the gateway sent output before it accepted the call")
        return self._output


def _chunk(chunk: inference_pb2.TokenChunk) -> Chunk:
    ids = tuple(unpack_ids(chunk.token_ids.packed))
    return Chunk(chunk.text, ids, _logprobs(chunk.logprobs), _logprobs(chunk.prompt_logprobs))


def _logprobs(entries: Iterable[common_pb2.TokenLogprobs]) -> tuple[TokenLogprobs, ...]:
    return tuple(
        TokenLogprobs(
            entry.logprob,
            tuple(zip(entry.top_ids, entry.top_logprobs, strict=True)),
            entry.token,
            tuple(entry.top_tokens),
        )
        for entry in entries
    )

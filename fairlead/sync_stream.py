"""A call in progress for applications without an event loop."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from fairlead.background import Background
from fairlead.completion import Chunk, Completion
from fairlead.stream import Stream
from fairlead.v1 import inference_pb2


class SyncStream(Iterator[Chunk]):
    """One call in progress: a blocking iterator of chunks, otherwise like Stream.

    The call is cancelled if a loop over it stops early, and by `close`.
    """

    def __init__(self, background: Background, stream: Stream) -> None:
        self._background = background
        self._stream = stream
        self._chunks = aiter(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Chunk]:
        """See Stream."""
        try:
            while (chunk := self._background.call(self._following)) is not None:
                yield chunk
        finally:
            self.close()

    def __next__(self) -> Chunk:
        chunk = self._background.call(self._following)
        if chunk is None:
            raise StopIteration
        return chunk

    def close(self) -> None:
        """Cancel the call, from any thread: the iteration raises Cancelled. Do nothing after its end."""
        self._background.post(self._stream.cancel)

    def wait(self) -> Completion:
        """Read the rest of the output and return the completion."""
        for _ in self:
            pass
        return self.completion

    @property
    def accepted(self) -> inference_pb2.Accepted | None:
        """See Stream."""
        return self._stream.accepted

    @property
    def completion(self) -> Completion:
        """See Stream."""
        return self._stream.completion

    async def _following(self) -> Chunk | None:
        return await anext(self._chunks, None)

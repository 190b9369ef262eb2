"""The port between the adapter's backend and an engine that serves."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import Text
from local_worker.core.request import Request
from local_worker.tokenizer import Tokenizer
from serving.kv_events.messages import KvEvent

CONSTRAINTS = frozenset({"json_object", "json_schema", "choice", "regex", "grammar"})  # all kinds that callers can give
LONGEST_MESSAGE = 500  # characters of an engine's error that are passed on


class EngineRefused(Exception):
    """The engine answered that a request is wrong."""


class EngineAway(Exception):
    """The engine cannot be reached, or failed while it computed; the request may be computed elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The properties of an engine that do not change while it runs.

    `pages` is the number of pages of its KV cache that requests can use.
    """

    model: str
    root: str  # path or id of the model's files
    engine: str  # name and version
    max_model_tokens: int
    block_tokens: int
    pages: int
    constraints: frozenset[str]  # the kinds of constraints that it obeys
    long_prefill_tokens: int | None = None  # largest part of a prompt in a step; 0: no limit; None: it does not tell
    caches_prefixes: bool = False  # whether it says that requests find the prefixes of earlier ones


class EngineCounts(NamedTuple):
    """The load of the engine: its requests, waiting or running, and the part of its pages that they use."""

    requests: int
    pages_used: float


class OutputPiece(NamedTuple):
    """New output of one request; `finish` is the reason why it ends here, None while it goes on."""

    tokens: list[int]
    text: str
    logprobs: list[SampledLogprobs]
    finish: FinishReason | None


class EngineOutput(Protocol):
    """The output of one request, from its first new token."""

    @property
    def text(self) -> Text:
        """The decoder of the tokens of each piece, valid once the piece has been yielded."""

    def pieces(self) -> AsyncIterator[OutputPiece]:
        """Compute the request and yield its output; leaving the iterator early aborts it at the engine.

        Raises EngineAway, and EngineRefused for a request that is wrong wherever it goes.
        """


class BlockFollower(Protocol):
    """A subscriber to an engine's events about its KV cache."""

    async def run(self) -> None:
        """Follow the events until cancelled."""

    def restart(self) -> None:
        """Forget what the engine has published, since it is not the same engine any more."""


# It is given two functions: the first takes events, the second forgets all blocks.
FollowerFactory = Callable[[Callable[[list[KvEvent]], None], Callable[[], None]], BlockFollower]


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """The operations that an adapter uses of an engine that serves.

    `tokenizer` may be called on other threads. `compute_prefix` lets the engine compute, and cache, so many leading
    tokens of a request, and raises as EngineOutput does.
    """

    info: EngineInfo
    tokenizer: Tokenizer
    make_output: Callable[[Request], EngineOutput]
    make_follower: FollowerFactory | None  # None: the engine's blocks are not followed
    compute_prefix: Callable[[Request, int], Awaitable[None]] | None = None  # None: it may cache nothing


class EngineApi(Protocol):
    """The calls about an engine as a whole; all raise EngineAway."""

    async def describe(self) -> EngineInfo:
        """Return what the engine is, once it serves."""

    async def open(self, info: EngineInfo) -> OpenEngine:
        """Return what is needed to hand requests to the engine that is described by `info`."""

    async def counts(self) -> EngineCounts:
        """Return what the engine has to do; also shows that it can still compute."""

    async def reset_prefix_cache(self) -> None:
        """Evict cached blocks that no request uses; raise EngineRefused if the engine does not offer it."""

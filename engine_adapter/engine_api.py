"""What an engine that serves says of itself and of a request, and how it fails."""

from dataclasses import dataclass
from typing import NamedTuple

from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs

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

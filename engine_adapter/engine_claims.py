"""Checks of what an engine says, before anything depends on it. An engine that says what cannot be counts as away."""

import math

from engine_adapter.engine_api import EngineAway, EngineCounts, EngineInfo, OutputPiece

MOST_TOKENS = 2**31 - 1
MOST_CHARACTERS = 512  # of a name
MOST_BLOCK_TOKENS = 2**16
MOST_REQUESTS = 2**31 - 1
IDS = 2**32
MOST_EMPTY = 10_000  # consecutive pieces of an output without a token


def check_info(info: EngineInfo) -> None:
    """Raise EngineAway when a figure of `info` is out of its range, or a name cannot stand in a line of a log."""
    claims = {
        "context": (info.max_model_tokens, MOST_TOKENS),
        "block size": (info.block_tokens, MOST_BLOCK_TOKENS),
        "number of pages": (info.pages, MOST_TOKENS),
        "number of tokens in its KV cache": (info.pages * info.block_tokens, MOST_TOKENS),
        "largest part of a prompt in a step": (info.long_prefill_tokens or 1, MOST_TOKENS),
    }
    for name, text in {"model": info.model, "path": info.root, "version": info.engine}.items():
        if len(text) > MOST_CHARACTERS or not text.isprintable():
            raise EngineAway(f"the engine's {name} is no name of at most {MOST_CHARACTERS} characters: {text[:64]!a}")
    for name, (value, most) in claims.items():
        if not 1 <= value <= most:
            raise EngineAway(f"the engine's {name} is {value}, not from 1 to {most}")


def check_counts(counts: EngineCounts) -> None:
    """Raise EngineAway when the load is none."""
    if not (0 <= counts.requests <= MOST_REQUESTS and math.isfinite(counts.pages_used) and counts.pages_used >= 0):
        raise EngineAway(f"the engine's load is {counts}")


class OutputClaims:
    """The pieces of one output: no more than `left` tokens, each an id, with log-probabilities that are numbers."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._empty = 0

    def check(self, piece: OutputPiece) -> None:
        """Raise EngineAway when the next piece cannot be one of the output."""
        self._left -= len(piece.tokens)
        if self._left < 0:
            raise EngineAway("the engine generated more tokens than were asked for")
        self._empty = 0 if piece.tokens else self._empty + 1
        if self._empty > MOST_EMPTY:
            raise EngineAway(f"the engine sent {MOST_EMPTY} parts of an output without a token")
        if not all(0 <= token < IDS for token in piece.tokens):
            raise EngineAway("the engine generated what is no token id")
        for found in piece.logprobs:
            if math.isnan(found.logprob) or not all(
                0 <= token < IDS and not math.isnan(value) for token, value in found.top
            ):
                raise EngineAway("the engine's log-probabilities are not those of tokens")

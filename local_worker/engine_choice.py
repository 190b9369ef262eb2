"""The values of the options `engine` and `kv_tokens` of a worker."""

import math
from typing import NamedTuple

from serving.config import ConfigError, require

NAMES = ("transformers", "vllm", "fake")
RUNNERS = ("v1", "v2")
BATCH_INVARIANT = "batch-invariant"


class EngineChoice(NamedTuple):
    """What computes tokens: an engine with its variant."""

    name: str
    batch_invariant: bool = False  # of transformers
    runner: str = RUNNERS[0]  # of vLLM's model runners
    step_seconds: float = 0.0  # of the fake engine
    token_bytes: int = 1  # of a prompt's text that the fake engine takes for a token

    @classmethod
    def parse(cls, text: str) -> "EngineChoice":
        """Return the engine that `name[:variant]` says; raise ConfigError."""
        name, mark, variant = text.partition(":")
        require(name in NAMES, f"engine: must be one of {', '.join(NAMES)}, got {name!r}")
        if not mark:
            return cls(name)
        if name == "fake":
            return _fake(variant)
        known = RUNNERS if name == "vllm" else (BATCH_INVARIANT,)
        require(variant in known, f"engine: {name}: must be followed by one of {', '.join(known)}, got {variant!r}")
        return cls(name, runner=variant) if name == "vllm" else cls(name, batch_invariant=True)


class CacheSize(NamedTuple):
    """The size of a KV cache: in tokens, or as a part of the memory. An engine may need both."""

    tokens: int | None = None
    memory_fraction: float = 0.3

    @classmethod
    def parse(cls, text: str) -> "CacheSize":
        """Return the size that `tokens`, `part%` or `tokens,part%` says; raise ConfigError."""
        size = cls()
        for part in map(str.strip, text.split(",")):
            if part.endswith("%"):
                fraction = _number("kv_tokens", part[:-1]) / 100
                require(0 < fraction < 1, f"kv_tokens: must be above 0 % and below 100 %, got {part}")
                size = size._replace(memory_fraction=fraction)
            else:
                require(part.isdecimal(), f"kv_tokens: expected a number of tokens or a part such as 30%, got {text!r}")
                size = size._replace(tokens=int(part))
        return size


def _fake(variant: str) -> EngineChoice:
    seconds, _, size = variant.partition(",")
    step = _number("engine: fake", seconds or "0")
    require(0 <= step < math.inf, f"engine: fake: seconds of a step must be 0 or more, got {seconds}")
    require(
        not size or (size.isdecimal() and int(size) > 0),
        f"engine: fake: bytes of a token must be above 0, got {size!r}",
    )
    return EngineChoice("fake", step_seconds=step, token_bytes=int(size or 1))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"{name}: expected a number, got {text!r}") from error

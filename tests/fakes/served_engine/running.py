"""One request at the served engine."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.served_engine.tokens import REPLACEMENT, text_of


@dataclass(eq=False)
class Running:
    """One request; `computed` are the tokens whose keys and values exist."""

    tokens: list[int]
    wanted: int
    ignore_eos: bool
    salt: str
    logprobs: int | None
    prompt: int = 0
    computed: int = 0
    shown: str = ""
    names: list[int] = field(default_factory=list)
    output: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)
        whole = text_of(self.tokens)
        # What is decoded first follows the prompt, unless that ends within a character: then all of it is shown again.
        self.shown = "" if whole.endswith(REPLACEMENT) else whole

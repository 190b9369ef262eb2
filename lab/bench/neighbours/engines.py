"""The engines beside which neighbours are measured, with the sizes of their workers."""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.bench.neighbours.neighbour import LONGEST_PROMPT
from serving.model_name import BUILT_IN


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """What a worker with an engine computes, and what a trial asks of it; `sizes` are options of the worker."""

    model: str
    longest_prompt: int  # tokens of a neighbour's, with the output
    quiet_every: float  # seconds between two questions
    sizes: Mapping[str, int | str]


TIMED = EngineSetting(
    model="fake",
    longest_prompt=LONGEST_PROMPT,
    quiet_every=0.5,
    sizes={
        "kv-tokens": 196_608,
        "max-prompt-tokens": LONGEST_PROMPT,
        "max-running": 64,
        "token-budget": 512,
        "quantum-tokens": 128,
        "engine": "fake:,4",
    },
)
# Two processor cores compute the small model more slowly than the timed GPU a model of 8B: a sixteenth of the lengths.
REAL = EngineSetting(
    model=BUILT_IN,
    longest_prompt=LONGEST_PROMPT // 16,
    quiet_every=2.0,
    sizes={"kv-tokens": 196_608 // 16, "max-prompt-tokens": LONGEST_PROMPT // 16},
)
ENGINES = {"fake": TIMED, "transformers": REAL, "vllm": REAL}

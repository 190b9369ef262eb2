"""The engine that all systems have underneath."""

from dataclasses import dataclass

from serving.model_name import BUILT_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One model on this machine, with the same capacity under every system; sizes are in tokens."""

    threads: int
    model: str = BUILT_IN
    dtype: str = "float32"
    context: int = 1024
    kv_tokens: int = 8192
    block_tokens: int = 32  # vLLM's attention on a CPU needs a multiple of it
    max_running: int = 16
    token_budget: int = 256
    memory_fraction: float = 0.3
    long_prefill_tokens: int = 0  # the largest part of a prompt in a step; 0: no limit, which vLLM's server alone has

    @property
    def served_name(self) -> str:
        """The model's name in requests: the last part of its path or id."""
        return self.model.rpartition("/")[2]

"""Published figures of GPUs and models."""

from dataclasses import dataclass

BYTES = 2  # per weight and per KV element, float16


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak figures of a GPU for dense float16 computation."""

    flops: float  # per second
    bandwidth: float  # bytes per second
    memory: float  # bytes


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a decoder-only transformer."""

    parameters: float
    layers: int
    hidden: int  # query heads x head size
    kv_hidden: int  # KV heads x head size

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights that each step reads once."""
        return self.parameters * BYTES

    @property
    def kv_bytes(self) -> int:
        """Bytes per token in the KV cache."""
        return 2 * self.layers * self.kv_hidden * BYTES


GPUS = {
    "a10g": Gpu(flops=70e12, bandwidth=600e9, memory=24e9),
    "a100-80g": Gpu(flops=312e12, bandwidth=2039e9, memory=80e9),
    "a100": Gpu(flops=312e12, bandwidth=2039e9, memory=80e9),  # alias of a100-80g
    "h100": Gpu(flops=989e12, bandwidth=3350e9, memory=80e9),
}

MODELS = {
    "llama-2-7b": ModelShape(parameters=6.74e9, layers=32, hidden=4096, kv_hidden=4096),
    "llama-2-13b": ModelShape(parameters=13.02e9, layers=40, hidden=5120, kv_hidden=5120),
    "llama-3.1-8b": ModelShape(parameters=8.03e9, layers=32, hidden=4096, kv_hidden=1024),
    "llama-3.2-3b": ModelShape(parameters=3.21e9, layers=28, hidden=3072, kv_hidden=1024),
}

"""The ceilings of a device: the rates of a large copy and of a large matrix product, which floors are computed from."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS, ROUNDS = 3, 10


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bytes per second of a copy, those read and those written together, and operations per second of a product."""

    bytes_per_second: float
    operations_per_second: float

    @classmethod
    def measure(cls, device: str, dtype: torch.dtype, copied: int, matrix: int) -> "Ceilings":
        """Copy `copied` bytes, far more than a cache holds, and multiply two square matrices of random numbers."""
        source = torch.empty(copied, dtype=torch.uint8, device=device).random_()
        target = torch.empty_like(source)
        copy = _median_seconds(lambda: target.copy_(source), device)
        left, right = (torch.randn(matrix, matrix, device=device, dtype=dtype) for _ in range(2))
        product = _median_seconds(lambda: left @ right, device)
        return cls(2 * copied / copy, 2 * matrix**3 / product)


def _median_seconds(act: Callable[[], object], device: str) -> float:
    """Return the median duration of `act`, on CUDA by the device's own clock."""
    for _ in range(WARM_UPS):
        act()
    timed = _event_seconds if device == "cuda" else _clock_seconds
    return statistics.median(timed(act) for _ in range(ROUNDS))


def _event_seconds(act: Callable[[], object]) -> float:
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    began.record()
    act()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3


def _clock_seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began

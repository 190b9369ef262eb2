"""Numbers between host and device without waiting for what the device is doing.

From ordinary memory a copy to the device would; torch keeps pinned memory until the copies from it are done.
"""

from collections.abc import Sequence
from itertools import chain

import torch


def staged(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`numbers` in host memory from which they can be copied to `device` at any time."""
    tensor = torch.tensor(numbers, dtype=dtype)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def upload(columns: Sequence[Sequence[int]], device: torch.device) -> list[torch.Tensor]:
    """int64 columns of any lengths on `device`, in one copy."""
    numbers = staged(list(chain.from_iterable(columns)), torch.int64, device).to(device, non_blocking=True)
    return list(numbers.split([len(column) for column in columns]))  # type: ignore[no-untyped-call]


class Download:
    """Tensors on their way to the host."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        # To the host without blocking means into pinned memory.
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrived = None
        if any(tensor.is_cuda for tensor in tensors):
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def wait(self) -> list[torch.Tensor]:
        """On the host, once the device has computed them; raises what the device raised."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensors

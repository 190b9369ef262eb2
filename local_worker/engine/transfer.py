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


class Milestone:
    """A point in the device's work that the host can wait for; the CPU is always there."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def set(self) -> None:
        """The point is here: after what has been launched so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Until the device has come to the point that was set last, if any; raises what the device raised."""
        if self._event is not None:
            self._event.synchronize()


class Download:
    """Tensors on their way to the host."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        # To the host without blocking means into pinned memory.
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrived = Milestone(tensors[0].device)
        self._arrived.set()

    def wait(self) -> list[torch.Tensor]:
        """On the host, once the device has computed them; raises what the device raised."""
        self._arrived.wait()
        return self._tensors

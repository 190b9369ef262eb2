"""Copies of numbers between host and device that do not wait for the device's computation.

A copy from pageable memory to the device would wait. torch keeps pinned memory alive until copies from it are done.
"""

from collections.abc import Sequence
from itertools import chain

import torch


def pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a `tensor` of the host in memory from which it can be copied to `device` without waiting."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def staged(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return `numbers` in host memory from which they can be copied to `device` without waiting."""
    return pinned(torch.tensor(numbers, dtype=dtype), device)


def upload(columns: Sequence[Sequence[int]], device: torch.device) -> list[torch.Tensor]:
    """Return int64 columns of any lengths on `device`, transferred in one copy."""
    numbers = staged(list(chain.from_iterable(columns)), torch.int64, device).to(device, non_blocking=True)
    return list(numbers.split([len(column) for column in columns]))  # type: ignore[no-untyped-call]


def upload_ids(packed: bytes, device: torch.device) -> torch.Tensor:
    """Return packed token ids, at least one, as int32 on `device`."""
    return pinned(torch.frombuffer(bytearray(packed), dtype=torch.int32), device).to(device, non_blocking=True)


def upload_bits(rows: Sequence[bytes], device: torch.device) -> torch.Tensor:
    """Return the bits of `rows`, all of one length, as Booleans [rows, bits] on `device`, the lowest of each byte
    first."""
    packed = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(len(rows), -1, 1)
    packed = pinned(packed, device).to(device, non_blocking=True)
    places = 1 << torch.arange(8, dtype=torch.uint8, device=device)
    return (packed & places).bool().view(len(rows), -1)


class Milestone:
    """A point in the device's work for which the host can wait; on the CPU there is nothing to wait for."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def set(self) -> None:
        """Set the point after all work that has been launched so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Wait until the device has reached the point that was set last, if any; raise the device's error."""
        if self._event is not None:
            self._event.synchronize()


class Download:
    """A copy of tensors to the host that is in progress."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        # A non-blocking copy to the host goes to pinned memory.
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrived = Milestone(tensors[0].device)
        self._arrived.set()

    def wait(self) -> list[torch.Tensor]:
        """Return the tensors on the host once the device has computed them; raise the device's error."""
        self._arrived.wait()
        return self._tensors

"""The free memory of the device, and the number of tokens of context that fit in it."""

from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
GB = 1e9


class OutOfMemory(Exception):
    """Raised when a model or a KV cache does not fit in memory; the message shows the calculation."""


def available(device: torch.device) -> int:
    """Return the number of bytes that are free on `device`; on the CPU also within the container's limit."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return min([_host(), *_cgroup()])


def kv_tokens(free: int, fraction: float, token_bytes: int, block_tokens: int) -> int:
    """Return the number of tokens, in whole blocks, that fit into `fraction` of `free` bytes.

    Raises OutOfMemory if not even one block fits.
    """
    blocks = int(free * fraction) // (token_bytes * block_tokens)
    if not blocks:
        raise OutOfMemory(
            f"the KV cache needs at least {block_tokens} tokens x {token_bytes:,} bytes;"
            f" {fraction:.0%} of the {free / GB:.2f} GB of free memory is less"
        )
    return blocks * block_tokens


def check_weights(parameters: int, dtype: torch.dtype, free: int) -> None:
    """Raise OutOfMemory if the weights of `parameters` parameters do not fit into `free` bytes."""
    need = parameters * dtype.itemsize
    if need > free:
        raise OutOfMemory(
            f"{parameters:,} parameters x {dtype.itemsize} bytes make {need / GB:.2f} GB; {free / GB:.2f} GB are free"
        )


def check_kv(tokens: int, token_bytes: int, free: int) -> None:
    """Raise OutOfMemory if a KV cache of `tokens` tokens does not fit into `free` bytes."""
    need = tokens * token_bytes
    if need > free:
        raise OutOfMemory(
            f"kv_tokens: {tokens:,} tokens x {token_bytes:,} bytes make {need / GB:.2f} GB;"
            f" {free / GB:.2f} GB are free; at most {free // token_bytes:,} tokens fit"
        )


def _host() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line MemAvailable")


def _cgroup() -> list[int]:
    """Return the bytes left within the container's limit (cgroup v2), as a list that is empty without a limit."""
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return []
    reclaimable = next(
        (
            int(line.split()[1])
            for line in (CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        ),
        0,
    )
    return [int(text) - int(used.read_text()) + reclaimable]

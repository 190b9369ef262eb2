"""How much memory there is, and how many tokens of context fit."""

from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
GB = 1e9


class OutOfMemory(Exception):
    """What was asked for cannot fit; the message holds the arithmetic."""


def available(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`; on the CPU also within the container's limit."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return min([_host(), *_cgroup()])


def kv_tokens(free: int, fraction: float, token_bytes: int, block_tokens: int) -> int:
    """Tokens in whole blocks that fit into `fraction` of `free` bytes; raises OutOfMemory when not one block does."""
    blocks = int(free * fraction) // (token_bytes * block_tokens)
    if not blocks:
        raise OutOfMemory(
            f"the KV cache needs {block_tokens} tokens x {token_bytes:,} bytes at least;"
            f" {fraction:.0%} of the {free / GB:.2f} GB that are free hold none"
        )
    return blocks * block_tokens


def check_weights(parameters: int, dtype: torch.dtype, free: int) -> None:
    """Raise OutOfMemory when the weights do not fit into `free` bytes."""
    need = parameters * dtype.itemsize
    if need > free:
        raise OutOfMemory(
            f"{parameters:,} parameters x {dtype.itemsize} bytes make {need / GB:.2f} GB; {free / GB:.2f} GB are free"
        )


def check_kv(tokens: int, token_bytes: int, free: int) -> None:
    """Raise OutOfMemory when a KV cache of `tokens` does not fit into `free` bytes."""
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
    raise OSError("/proc/meminfo does not say how much memory is available")


def _cgroup() -> list[int]:
    """What the container's limit leaves, if it has one (cgroup v2)."""
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

"""The memories in which an engine may keep a block, from the device on to slower ones.

What a block costs that is loaded in place of computed, in thousandths of computing it, is the time of its transfer over
that of its computation: a token of Llama-3.1-8B has 128 KiB of keys and values and takes 16 GFLOP. An A100 computes it
in about 100 us at half of its 312 TFLOP/s. PCIe 4.0 x16 carries it in 5 us at 25 GB/s, and an NVMe disk in 20 us at
6.5 GB/s: rates that are assumed, none is measured. With a larger model computing takes longer, with a faster device
less long.
"""

from collections.abc import Mapping

DEVICE, HOST, DISK = range(3)
TIERS = (DEVICE, HOST, DISK)
# Of vLLM and SGLang. Others, such as those of other machines, are not followed.
TIER_OF_MEDIUM: Mapping[str | None, int] = {
    None: DEVICE,
    "GPU": DEVICE,
    "CPU": HOST,
    "CPU_PINNED": HOST,
    "STORAGE": DISK,
    "DISK": DISK,
}
LOADING = {HOST: 50, DISK: 200}  # thousandths of computing a block

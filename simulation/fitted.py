"""Profiles of the two systems behind the VTC measurements, and which of these measurements they were fitted to.

Prefill: the shortest times from one request's last token to its successors' first. Decoding and merging: total time and
mean time from first to last token of the fitted runs.
"""

from simulation.hardware import GPUS, MODELS
from simulation.step_time import Profile

FITTED_TO = frozenset(
    {
        "VTC__overload",
        "FCFS__real",
        "VTC__poisson_short_long",
        "LShare__rpm5__real",
        "sec6.4__35000__VTC-256__overload-s4",
        "sec6.4__65000__VTC-768__overload-s4",
    }
)

SLORA = {
    "a10g llama-2-7b": Profile(
        gpu=GPUS["a10g"],
        model=MODELS["llama-2-7b"],
        compute=0.85,
        weights=0.90,
        kv=0.53,
        step_seconds=0.0005,
        sequence_seconds=0.0,
        prefill_seconds=0.02,
        merge_seconds=0.08,
    ),
    "a100-80g llama-2-13b": Profile(
        gpu=GPUS["a100-80g"],
        model=MODELS["llama-2-13b"],
        compute=0.77,
        weights=0.80,
        kv=0.5,
        step_seconds=0.004,
        sequence_seconds=0.0,
        prefill_seconds=0.02,
        merge_seconds=0.08,
    ),
}

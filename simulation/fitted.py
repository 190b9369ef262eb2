"""Profiles of the two systems behind the VTC measurements, and which of these measurements they were fitted to.

Prompts: the shortest times from one request's last token to its successors' first, and the latencies of an idle system.
Decoding: least squares over time per step of the fitted runs, whose batch sizes and context lengths differ.
"""

from simulation.hardware import GPUS, MODELS
from simulation.step_time import Profile

FITTED_TO = frozenset(
    {
        "FCFS__overload",
        "FCFS__real",
        "VTC__poisson_short_long",
        "LShare__rpm5__real",
        "sec6.4__35000__VTC-512__overload-s4",
        "sec6.4__65000__VTC-256__overload-s4",
        "sec6.4__65000__VTC-768__overload-s4",
    }
)

SLORA = {
    "a10g llama-2-7b": Profile(
        gpu=GPUS["a10g"],
        model=MODELS["llama-2-7b"],
        compute=0.85,
        weights=0.90,
        kv=0.495,
        step_seconds=0.0,
        sequence_seconds=0.0,
        prefill_seconds=0.04,
        merge_seconds=0.04,
    ),
    "a100-80g llama-2-13b": Profile(
        gpu=GPUS["a100-80g"],
        model=MODELS["llama-2-13b"],
        compute=0.77,
        weights=0.85,
        kv=0.631,
        step_seconds=0.0015,
        sequence_seconds=0.0001,
        prefill_seconds=0.02,
        merge_seconds=0.04,
    ),
}

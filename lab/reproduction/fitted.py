"""Profiles of the two systems behind the VTC measurements, and the runs to which they were fitted.

A10G: the fit is least squares over the times between consecutive events (first and last tokens) of the fitted Arena
runs; the output lengths determine the steps between them exactly. Tiles that hardly occur there are fitted to the two
other runs, which were 0.5 and 2 % slower. Half of the events are within 1.7 ms. A100: the prompt's cost comes from the
shortest times between one request's last token and its successors' first, and from latencies of an idle system. The
decoding cost comes from the time per step of three runs with different batch sizes and context lengths. The cost of a
token of context (`kv`), which distinguishes these lengths, is fitted by least squares to the total times of all five
runs. `python -m lab.reproduction vtc-measured` shows the error of each run when it is predicted from the other four.
"""

from simulation.hardware import GPUS, MODELS
from simulation.step_time import Profile

FITTED_TO = frozenset(
    {
        "FCFS__overload",
        "FCFS__real",
        "VTC__poisson_short_long",
        "LShare__rpm5__real",
        "sec6.4__35000__VTC-256__overload-s4",
        "sec6.4__35000__VTC-512__overload-s4",
        "sec6.4__65000__FCFS-256__overload-s4",
        "sec6.4__65000__VTC-256__overload-s4",
        "sec6.4__65000__VTC-768__overload-s4",
    }
)

# Llama-2-7B on an A10G, milliseconds for up to 64, 128, ... 3,072 tokens (step_time.Coefficients.tiles).
A10G_TILES = """
30.5 36.1 48.2 56.5 108.8 106.1 132.1 133.7 137 138.2 176.3 178.6
210.6 214.8 247.2 246.3 254.9 257.5 272.1 275.3 333.8 336.5 339.1 344.7
358 360.2 394.6 405.9 417.1 429.5 441.9 452.8 468.7 487.4 506.1 510
536 535.6 535.2 532.1 585.6 586.1 587.7 589.3 652.7 644.6 645.9 647.2
"""

SLORA = {
    "a10g llama-2-7b": Profile(
        gpu=GPUS["a10g"],
        model=MODELS["llama-2-7b"],
        kv=0.792,
        step_seconds=0.0,
        sequence_seconds=0.000054,
        prefill_seconds=0.0091,
        merge_seconds=0.0021,
        tile_seconds=tuple(float(milliseconds) / 1000 for milliseconds in A10G_TILES.split()),
    ),
    "a100-80g llama-2-13b": Profile(
        gpu=GPUS["a100-80g"],
        model=MODELS["llama-2-13b"],
        compute=0.77,
        weights=0.85,
        kv=0.611,
        step_seconds=0.0015,
        sequence_seconds=0.0001,
        prefill_seconds=0.02,
        merge_seconds=0.04,
    ),
}

"""The figures that were predicted before any of them was measured; lab/bench/GPU.md says how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.bench.gpu.row import Figure, Row, shown


@dataclass(frozen=True, slots=True)
class Prediction:
    """The range in which a figure of a check's case is expected on an H100; None: no limit on that side."""

    check: str
    case: str
    figure: str
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{shown(self.least)} to {shown(self.most)}"
        return f"≥ {shown(self.least)}" if self.least is not None else f"≤ {shown(self.most or 0.0)}"

    def find(self, rows: Mapping[str, Sequence[Row]]) -> Figure | None:
        """Return the measured figure from the rows of each check, None if there is none."""
        for row in rows.get(self.check, ()):
            if row.case == self.case and self.figure in row.figures:
                return row.figures[self.figure]
        return None

    def holds(self, figure: Figure) -> bool:
        """Return whether the figure lies in the range."""
        value = float(figure)
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


PREDICTIONS = (
    Prediction("device", "copy", "tb_per_s", 2.8, 3.2),
    Prediction("device", "matmul", "tflop_per_s", 700.0, 820.0),
    Prediction("device_tests", "tests/system/gpu", "failed", most=0.0),
    Prediction("device_tests", "tests/system/gpu", "skipped", most=0.0),
    Prediction("decode", "1 requests, graphs", "of_memory", least=0.65),
    Prediction("decode", "64 requests, graphs", "of_memory", least=0.75),
    Prediction("decode", "64 requests, launched", "ms", 15.0, 35.0),
    Prediction("prefill", "2,048 new, 0 cached", "of_matmul", least=0.45),
    Prediction("prefill", "64 new, 4,032 cached", "ms", most=35.0),
    Prediction("prefill", "heads 32/2/128", "128_after_2048_ms", most=10.0),
    Prediction("mixed", "63 decodes, chunk of 64, graphs", "ms", most=11.0),
    Prediction("mixed", "63 decodes, chunk of 64, launched", "ms", 15.0, 35.0),
    Prediction("mixed", "63 decodes, chunk of 1024, launched", "ms", most=60.0),
    Prediction("run_ahead", "0 ahead, round 2", "times_forward", least=1.1),
    Prediction("run_ahead", "1 ahead, round 2", "times_forward", most=1.1),
    Prediction("policies", "dlpm's rate, 10 clients", "of_lpm", least=0.97),
    Prediction("policies", "dlpm's rate, 50 clients", "of_lpm", least=0.9),
    Prediction("policies", "dlpm's rate, 50 clients", "of_vtc", least=1.2),
    Prediction("policies", "dlpm, 10 clients", "jain", least=0.99),
    Prediction("policies", "dlpm, 50 clients", "within", least=1.0),
    Prediction("long_prompt", "16,000 tokens beside 16, budget 512", "p99_ms", most=45.0),
    Prediction("long_prompt", "16,000 tokens beside 16, budget 2,048", "p99_ms", most=130.0),
    Prediction("neighbours", "dlpm, alone", "first_p99_ms", most=80.0),
    Prediction("neighbours", "dlpm, 4 calls of 32,000 and 16 tokens", "first_p99_ms", most=400.0),
    Prediction("neighbours", "fcfs, 4 calls of 32,000 and 16 tokens", "first_p99_ms", least=2000.0),
    Prediction("neighbours", "dlpm, 160 calls of 256 and 1,500 tokens", "first_p99_ms", most=200.0),
    Prediction("neighbours", "fcfs, 160 calls of 256 and 1,500 tokens", "first_p99_ms", least=5000.0),
    Prediction("neighbours", "dlpm, 16 calls of 8,000 and 1 tokens", "first_p99_ms", most=300.0),
    Prediction("served", "alone", "p99_ms", most=80.0),
    Prediction("served", "beside the flood", "within", least=1.0),
    Prediction("attention", "2,048 new, 0 cached, FlashInfer", "ms", most=85.0),
    Prediction("attention", "64 decodes, Sdpa", "ms", least=20.0),
    Prediction("long_contexts", "16 requests of 8,000 tokens", "of_memory", least=0.7),
)

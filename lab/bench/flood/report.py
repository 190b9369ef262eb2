"""The figures of all systems: a table, all numbers as JSON, and a picture as SVG."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lab.bench.flood.figures import Figures
from lab.bench.flood.phase import Phase
from lab.bench.flood.workload import FLOOD

HEADS = (
    "system",
    "quiet user's time to first token alone, p50 / p99",
    "beside the flood, p50 / p99",
    "p99 allowed",
    "agent's interactions",
    "flooder's share",
    "tokens/s",
)


def table(rows: Sequence[Figures]) -> str:
    """Return a Markdown table with a row for each system; times are in seconds."""
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for row in rows:
        alone, flooded = row.alone, row.flooded
        cells = (
            row.system,
            f"{alone.p50:.2f} / {alone.p99:.2f}",
            f"{flooded.p50:.2f} / {flooded.p99:.2f}",
            f"{row.target:.2f}, {'kept' if row.keeps_target else 'missed'}",
            f"{row.interactions}",
            f"{row.shares[FLOOD]:.0%}",
            f"{row.tokens_per_second:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_json(path: Path, context: Mapping[str, object], seen: Sequence[tuple[Figures, Phase, Phase]]) -> None:
    """Write what was run, and of each system the figures and every call of both phases."""
    systems = [
        {"figures": asdict(row), "alone": asdict(alone), "flooded": asdict(flooded)} for row, alone, flooded in seen
    ]
    path.write_text(json.dumps({**context, "systems": systems}, indent=1))

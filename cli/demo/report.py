"""The demo's result for a terminal of 80 columns by 24 lines, and all measurements as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from cli.demo.evidence import Evidence, Finding, in_seconds
from cli.demo.trial import Trial
from cli.demo.users import USERS

BAR = 36  # characters
HEADS = "{:<19} {:>20} {:>17} {:>9} {:>10}"
ROW = "{:<19} {:>6} {:>6} {:>6} {:>8} {:>8} {:>9} {:>10}"


def screen(runs: Sequence[Evidence], findings: Sequence[Finding], bound: float) -> str:
    """Return the text for `runs` under FCFS, VTC and DLPM; `bound` is DLPM's for the pool, in cost units."""
    demand = ", ".join(f"{user.name} {user.parallel}" for user in USERS)
    return "\n".join(
        [
            f"Three users share two workers. Questions at a time: {demand}.",
            "Questions of one user begin alike. A worker caches the beginning of one user's.",
            "Service is counted in units: 1 per uncached input token, 2 per output token.",
            "",
            *_table(runs),
            "",
            f"How far a waiting user fell behind another; the bound, |, is {bound:,.0f} units:",
            *_bars(runs, bound),
            f"The bound equals the service that the workers give in {in_seconds(bound, runs):,.0f} seconds.",
            "",
            *_findings(findings),
            *_cut(runs),
        ]
    )


def _table(runs: Sequence[Evidence]) -> list[str]:
    names = [user.name for user in USERS]
    return [
        HEADS.format("", "share of service", "median wait, s", "cache", "output"),
        ROW.format("", *names, names[0], names[1], "hit rate", "tokens/s"),
        *(
            ROW.format(
                run.title,
                *(f"{user.share:.0%}" for user in run.users),
                f"{run.users[0].ttft_p50:.1f}",
                f"{run.users[1].ttft_p50:.1f}",
                f"{run.hit_rate:.0%}",
                f"{run.tokens_per_second:.1f}",
            )
            for run in runs
        ),
    ]


def _bars(runs: Sequence[Evidence], bound: float) -> list[str]:
    most = max(bound, *(run.gap for run in runs))
    mark = round(bound / most * (BAR - 1))
    lines = []
    for run in runs:
        cells = list(f"{'#' * round(run.gap / most * BAR):<{BAR}}")
        cells[mark] = "|"
        lines.append(f"{run.title:<19} {''.join(cells)} {run.gap:>7,.0f}  {_place(run.gap, bound)}")
    return lines


def _place(gap: float, bound: float) -> str:
    return "within" if gap <= bound else "BEYOND"


def _findings(findings: Sequence[Finding]) -> list[str]:
    lines = [f"{'yes' if f.holds else 'NO '}  {f.claim:<34} {f.figures}" for f in findings]
    if all(finding.holds for finding in findings):
        return [*lines, "Verdict: fair, and the cache is kept."]
    return [*lines, "Verdict: this run does not support all claims; see the lines that begin with NO."]


def _cut(runs: Sequence[Evidence]) -> list[str]:
    names = [run.title for run in runs if run.cut]
    return [f"Ended by the time limit: {', '.join(names)}."] if names else []


def write_json(path: Path, bound: float, findings: Sequence[Finding], runs: Sequence[tuple[Evidence, Trial]]) -> None:
    document = {
        "bound": bound,
        "bound_seconds": in_seconds(bound, [evidence for evidence, _ in runs]),
        "findings": [dataclasses.asdict(finding) for finding in findings],
        "runs": [
            {
                "evidence": dataclasses.asdict(evidence),
                "calls": [dataclasses.asdict(call) for call in trial.record.calls],
                "errors": trial.record.errors,
                "samples": [dataclasses.asdict(sample) for sample in trial.observation.samples],
            }
            for evidence, trial in runs
        ],
    }
    path.write_text(json.dumps(document, indent=1))

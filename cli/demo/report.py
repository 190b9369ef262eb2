"""The demo's results: a table, a plot, the raw numbers, one line of plain verdict."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from cli.demo.evidence import Evidence
from cli.demo.observation import Observation
from cli.demo.scenario import Record

ROW = "{:<18} {:<8} {:>9} {:>7} {:>9} {:>10} {:>10} {:>11}"
SUMMARY = "{:<18} {:>6} {:>12} {:>14} {:>9} {:>11}"


def table(runs: Sequence[Evidence], bound: float) -> str:
    """Both runs, per user and in all."""
    lines = [ROW.format("schedulers", "user", "service", "share", "requests", "TTFT p50 s", "TTFT p99 s", "backlogged")]
    for run in runs:
        lines += [
            ROW.format(
                run.title,
                user.user,
                f"{user.service:,.0f}",
                f"{user.share:.1%}",
                user.requests,
                f"{user.ttft_p50:.2f}",
                f"{user.ttft_p99:.2f}",
                f"{run.backlogged[user.user]:.0%}",
            )
            for user in run.users
        ]
    lines += ["", SUMMARY.format("schedulers", "Jain", "service gap", "DLPM's bound", "hit rate", "tokens/s")]
    lines += [
        SUMMARY.format(
            run.title,
            f"{run.jain:.3f}",
            f"{run.gap:,.0f}",
            f"{bound:,.0f}",
            f"{run.hit_rate:.1%}",
            f"{run.tokens_per_second:.1f}",
        )
        for run in runs
    ]
    return "\n".join(lines)


def verdict(unfair: Evidence, fair: Evidence, bound: float) -> str:
    """One sentence that says what was seen, whatever it was."""
    flooder = f"the flooder got {unfair.users[0].share:.0%} of the service"
    before = f"under {unfair.title} {flooder}, a gap of {unfair.gap:,.0f} ({_against(unfair.gap, bound)})"
    after = f"under {fair.title} {fair.users[0].share:.0%}, a gap of {fair.gap:,.0f} ({_against(fair.gap, bound)})"
    return f"Verdict: {before}; {after}."


def _against(gap: float, bound: float) -> str:
    return f"{'within' if gap <= bound else 'beyond'} the bound of {bound:,.0f}"


def write_json(path: Path, bound: float, runs: Sequence[tuple[Evidence, Record, Observation]]) -> None:
    """Everything that was measured."""
    document = {
        "bound": bound,
        "runs": [
            {
                "evidence": dataclasses.asdict(evidence),
                "calls": [dataclasses.asdict(call) for call in record.calls],
                "errors": record.errors,
                "samples": [dataclasses.asdict(sample) for sample in observation.samples],
            }
            for evidence, record, observation in runs
        ],
    }
    path.write_text(json.dumps(document, indent=1))


def plot(path: Path, bound: float, runs: Sequence[tuple[Evidence, Observation]]) -> None:
    """Service over time per user, one panel per run, same scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(runs), figsize=(11, 4.2), sharey=True, layout="constrained")
    for axis, (evidence, observation) in zip(axes, runs, strict=True):
        times = [sample.at for sample in observation.samples]
        for user in evidence.users:
            served = [sample.service.get(user.user, 0.0) for sample in observation.samples]
            axis.plot(times, served, label=f"{user.user} ({user.role})")
        least = [min(s.service.get(u.user, 0.0) for u in evidence.users) for s in observation.samples]
        top = [value + bound for value in least]
        axis.plot(times, top, linestyle=":", color="grey", label="least served + bound")
        axis.set_title(f"{evidence.title}: gap {evidence.gap:,.0f}, bound {bound:,.0f}")
        axis.set_xlabel("seconds")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("service received (input tokens + 2 x output tokens)")
    axes[0].legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)

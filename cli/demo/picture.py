"""The demo's plot: the service of each user, the service gap, and its cost in hits and throughput."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cli.demo.evidence import Evidence, in_seconds
from cli.demo.observation import Observation
from cli.demo.users import USERS

USER_COLOURS = {"flood": "#c0392b", "alice": "#2471a3", "bob": "#1e8449"}
SYSTEM_COLOURS = ("#7f8c8d", "#b9770e", "#6c3483")
BOUND = "#555555"


def draw(path: Path, bound: float, runs: Sequence[tuple[Evidence, Observation]]) -> None:
    """Draw a PNG: each user's service over time under each system, and below it a comparison of the systems."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12.8, 7.2), height_ratios=(3, 2), layout="constrained")
    demand = ", ".join(f"{user.name} asks {user.parallel}" for user in USERS)
    figure.suptitle(
        "One user floods two workers: equal amounts of service under three systems\n"
        f"Questions at a time: {demand}. Each user's prompts share a prefix; a worker's cache has room for one.",
        fontsize=13,
    )
    for axis, (evidence, observation) in zip(axes[0], runs, strict=True):
        axis.sharex(axes[0, 0])
        axis.sharey(axes[0, 0])
        _service(axis, evidence, observation, bound)
    axes[0, 0].set_ylabel("service received (cost units)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    evidences = [evidence for evidence, _ in runs]
    gaps, hits, output = axes[1]
    _bars(gaps, evidences, "Most that a waiting user fell behind", lambda run: run.gap, "{:,.0f}")
    gaps.axvline(bound, color=BOUND, linestyle="--")
    gaps.set_xlabel(
        f"cost units (dashed: DLPM's proved bound, {bound:,.0f},\nthe service of {in_seconds(bound, evidences):,.0f} s)"
    )
    _bars(hits, evidences, "Prefix cache hit rate", lambda run: 100 * run.hit_rate, "{:.0f} %")
    hits.set_xlabel("% of prompt tokens")
    _bars(output, evidences, "Throughput", lambda run: run.tokens_per_second, "{:.1f}")
    output.set_xlabel("output tokens per second")
    for axis in (hits, output):
        axis.tick_params(labelleft=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _service(axis: Any, evidence: Evidence, observation: Observation, bound: float) -> None:
    samples = observation.samples
    times = [sample.at for sample in samples]
    for user in evidence.users:
        served = [sample.service.get(user.user, 0.0) for sample in samples]
        axis.plot(times, served, color=USER_COLOURS[user.user], linewidth=2, label=user.user)
    least = [min(sample.service.get(user.name, 0.0) for user in USERS) for sample in samples]
    top = [value + bound for value in least]
    axis.fill_between(times, least, top, color=BOUND, alpha=0.12, linewidth=0, label="at most the bound ahead")
    shares = ", ".join(f"{user.user} {user.share:.0%}" for user in evidence.users)
    axis.set_title(f"{evidence.title}\n{shares}", fontsize=11)
    axis.set_xlabel("time (s)")
    axis.grid(alpha=0.3)


def _bars(axis: Any, runs: Sequence[Evidence], title: str, value: Callable[[Evidence], float], form: str) -> None:
    values = [value(run) for run in runs]
    bars = axis.barh([run.title for run in runs], values, color=SYSTEM_COLOURS, height=0.6)
    axis.bar_label(bars, [form.format(value) for value in values], padding=4)
    axis.invert_yaxis()
    axis.margins(x=0.25)
    axis.set_title(title, fontsize=11)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)

"""The tables of the evaluation beyond the papers, as Markdown text."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, geometric_mean

from lab.reproduction.beyond_trial import CONTENDERS, OURS, RIVALS, SYSTEMS, Cell, Measures, Trial, cells

LEAST_SERVICE = 0.97  # of the best rival's throughput, in every cell
MOST_LATENCY = 1.03  # times the best rival's latency
CELLS_SHARE = 0.9  # of the cells, for latencies
Measure = Callable[[Measures], float]
Results = Mapping[tuple[Cell, str], Mapping[int, Measures]]  # by seed


def _service(measures: Measures) -> float:
    return measures.service


def _p99(measures: Measures) -> float:
    return measures.p99


def _first_token(measures: Measures) -> float:
    return measures.first_token


def report(trials: Mapping[Trial, Measures]) -> str:
    """Return all tables, and whether the rule for a new default is met; only cells in which all contenders ran are
    compared."""
    results: dict[tuple[Cell, str], dict[int, Measures]] = {}
    for trial, measures in trials.items():
        results.setdefault((trial.cell, trial.system), {})[trial.seed] = measures
    compared = [cell for cell in cells() if all((cell, name) in results for name in (OURS, *CONTENDERS))]
    parts = [f"{len(trials)} trials; all contenders ran in {len(compared)} of {len(cells())} cells."]
    if compared:
        parts += [
            _ratios("Throughput: ours over the system's", results, compared, _service, is_better_low=False),
            _ratios("P99 of the well-behaved: the system's over ours", results, compared, _p99),
            _ratios("P99 to the first token, well-behaved: the system's over ours", results, compared, _first_token),
            _rule(results, compared),
        ]
    return "\n\n".join([*parts, _all(results)])


def _ratio(results: Results, cell: Cell, name: str, measure: Measure) -> float | None:
    """Return ours over theirs, the mean of the seeds that both ran, or None if there is no such seed."""
    ratios = _seeds_ratios(results, cell, name, measure)
    return fmean(ratios) if ratios else None


def _seeds_ratios(results: Results, cell: Cell, name: str, measure: Measure) -> list[float]:
    """Return ours over theirs for each seed that both ran."""
    ours, theirs = results[cell, OURS], results.get((cell, name), {})
    return [measure(ours[seed]) / measure(theirs[seed]) for seed in ours if seed in theirs]


def _ratios(
    title: str, results: Results, compared: Sequence[Cell], measure: Measure, *, is_better_low: bool = True
) -> str:
    others = [name for name in SYSTEMS if name != OURS]
    lines = [
        f"**{title}** (above 1: ours is better; with several seeds the mean, and the least in parentheses)\n",
        "| cell | " + " | ".join(others) + " |",
    ]
    lines.append("|---" * (len(others) + 1) + "|")
    means: dict[str, list[float]] = {name: [] for name in others}
    least: dict[str, list[float]] = {name: [] for name in others}
    for cell in compared:
        texts = []
        for name in others:
            ratios = [1 / ratio if is_better_low else ratio for ratio in _seeds_ratios(results, cell, name, measure)]
            if ratios:
                means[name].append(fmean(ratios))
                least[name].append(min(ratios))
            texts.append(_mean_and_least(ratios))
        lines.append(f"| {cell} | " + " | ".join(texts) + " |")
    # An arithmetic mean of ratios flatters: twice and half would have the mean 1.25.
    rows = (("geometric mean", geometric_mean, means), ("worst", min, means), ("worst of all seeds", min, least))
    for what, of, columns in rows:
        texts = [f"{of(values):.2f}" if values else "-" for values in columns.values()]
        lines.append(f"| **{what}** | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _mean_and_least(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{fmean(ratios):.2f}" + (f" ({min(ratios):.2f})" if len(ratios) > 1 else "")


def _rule(results: Results, compared: Sequence[Cell]) -> str:
    slow = _behind(results, compared, _service, is_best_high=True)
    late = {
        "P99 of the well-behaved": _behind(results, compared, _p99, is_best_high=False),
        "P99 to the first token of the well-behaved": _behind(results, compared, _first_token, is_best_high=False),
    }
    lines = [_verdict(f"Throughput at least {LEAST_SERVICE} of the best rival's", slow, len(compared))]
    lines += [
        _verdict(f"{what} at most {MOST_LATENCY} times the best rival's", found, len(compared))
        for what, found in late.items()
    ]
    is_met = not slow and all(len(found) <= (1 - CELLS_SHARE) * len(compared) for found in late.values())
    lines.append(f"The rule for a new default is {'' if is_met else '**not** '}met.")
    return "\n".join(f"- {line}" for line in lines)


def _behind(results: Results, compared: Sequence[Cell], measure: Measure, *, is_best_high: bool) -> list[str]:
    """Return the cells in which ours is too far behind the best rival, with the ratio of ours to it."""
    found = []
    for cell in compared:
        ratios = {name: ratio for name in RIVALS if (ratio := _ratio(results, cell, name, measure)) is not None}
        best = (min if is_best_high else max)(ratios, key=ratios.__getitem__)
        if ratios[best] < LEAST_SERVICE if is_best_high else ratios[best] > MOST_LATENCY:
            found.append(f"{cell} ({ratios[best]:.2f} of {best})")
    return found


def _verdict(claim: str, behind: Sequence[str], compared: int) -> str:
    return (
        f"{claim}: in {compared - len(behind)} of {compared} cells{'; not in ' if behind else ''}{'; '.join(behind)}."
    )


def _all(results: Results) -> str:
    lines = [
        "| cell | system | seeds | service/s | Jain index | P50 s | P99 s | first token P99 s | of all clients s "
        "| hit rate | end s |",
        "|---" * 11 + "|",
    ]
    for cell in cells():
        for name in SYSTEMS:
            found = list(results.get((cell, name), {}).values())
            if found:
                lines.append(f"| {cell} | {name} | {len(found)} | " + " | ".join(_texts(found)) + " |")
    return "\n".join(lines)


def _texts(found: Sequence[Measures]) -> list[str]:
    def mean(measure: Measure) -> float:
        return fmean(measure(each) for each in found)

    return [
        f"{mean(_service):,.0f}",
        f"{mean(lambda m: m.jain):.3f}",
        f"{mean(lambda m: m.p50):.1f}",
        f"{mean(_p99):.1f}",
        f"{mean(_first_token):.1f}",
        f"{mean(lambda m: m.first_token_all):.1f}",
        f"{mean(lambda m: m.hits):.3f}",
        f"{mean(lambda m: m.seconds):.0f}",
    ]

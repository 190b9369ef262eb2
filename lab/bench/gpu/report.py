"""The report of a session: a short table of predicted and measured figures, and every row."""

from collections.abc import Iterator, Sequence

from lab.bench.gpu.predictions import Prediction
from lab.bench.gpu.row import Row, shown
from lab.bench.gpu.session import Outcome, Status

HEAD = ("| check | case | figure | predicted | measured | as predicted |", "|---|---|---|---|---|---|")


def summary(outcomes: Sequence[Outcome], predictions: Sequence[Prediction]) -> str:
    """Return the checks with their durations, and the predictions beside what was measured, as Markdown."""
    lines = ["| check | result | s |", "|---|---|---|", *map(_check, outcomes)]
    if predictions:
        lines += ["", *HEAD, *_compared(outcomes, predictions)]
    return "\n".join(lines)


def report(outcomes: Sequence[Outcome], predictions: Sequence[Prediction]) -> str:
    """Return the summary and all rows, as Markdown."""
    rows = [f"- {outcome.check}: {row}" for outcome in outcomes for row in outcome.rows]
    head = ["# Checks of the engine on a device", "", summary(outcomes, predictions), "", "## Every row", ""]
    return "\n".join([*head, *rows, ""])


def _check(outcome: Outcome) -> str:
    result = outcome.status.value + (f": {outcome.failure}" if outcome.failure else "")
    return f"| {outcome.check} | {result.replace('|', '/').replace(chr(10), ' ')} | {outcome.seconds:.0f} |"


def _compared(outcomes: Sequence[Outcome], predictions: Sequence[Prediction]) -> Iterator[str]:
    rows: dict[str, list[Row]] = {outcome.check: outcome.rows for outcome in outcomes}
    for prediction in predictions:
        found = prediction.find(rows)
        measured = Status.NOT_RUN.value if found is None else shown(found)
        held = "" if found is None else "yes" if prediction.holds(found) else "no"
        yield f"| {prediction.check} | {prediction.case} | {prediction.figure} | {prediction} | {measured} | {held} |"

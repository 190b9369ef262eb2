"""Prompts, cold and after a cached prefix, beside the rate of a large matrix product; and models with many query heads
per key head, for which FlashInfer needs the largest workspace."""

from collections.abc import Iterator

from lab.bench.gpu.row import CheckFailed, Row
from lab.bench.gpu.scale import Heads
from lab.bench.gpu.subject import Subject, prefill


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per prompt, then one per model with large groups; raise CheckFailed if one of these failed."""
    engine = subject.engine
    for new, cached in subject.scale.prefills:
        slices = [prefill(new, cached)]
        seconds = subject.step_seconds(engine, slices)
        rate = subject.work(slices).operations / seconds
        yield Row(
            f"{new:,} new, {cached:,} cached",
            {
                "ms": seconds * 1e3,
                "tokens_per_s": new / seconds,
                "of_matmul": rate / subject.ceilings.operations_per_second,
            },
        )
    failed = []
    for heads in subject.scale.heads:
        row = _large_group(subject, heads)
        yield row
        if "error" in row.figures:
            failed.append(str(heads))
    if failed:
        raise CheckFailed(f"heads {', '.join(failed)}")


def _large_group(subject: Subject, heads: Heads) -> Row:
    case = f"heads {heads}"
    try:
        engine = subject.engine_with(heads)
        milliseconds = {
            f"{new}_after_{cached}_ms": subject.step_seconds(engine, [prefill(new, cached)]) * 1e3
            for new, cached in subject.scale.few_heads_prefills
        }
    except RuntimeError as error:  # of FlashInfer's planner
        return Row(case, {"error": str(error)[:200]})
    return Row(case, {"graphs": engine._graphs is not None, **milliseconds})

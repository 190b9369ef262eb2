"""Predicted waits at simulated workers: how many are close, and whether those refused early would have missed."""

from collections.abc import Mapping

import pytest

from gateway.core.start_predictor import SURE, is_close
from lab.bench.predicted_waits import RATES, USERS, best, part_close, waits


@pytest.mark.parametrize(
    ("rates", "close", "missed"),
    [(USERS, 0.99, 0.0), (RATES["overloaded"], 0.65, 0.95), (RATES["flooded"], 0.8, 0.95)],
    ids=["idle", "overloaded", "flooded"],
)
def test_most_predictions_are_close_and_early_refusals_right(
    rates: Mapping[str, float], close: float, missed: float
) -> None:
    results = waits(rates)
    share = sum(is_close(each.predicted, each.waited) for each in results) / len(results)
    late = [each.waited > SURE * each.predicted for each in results if each.predicted > 0.5]
    print(f"{share:.0%} of {len(results)} close; {sum(late)} of {len(late)} would have missed")
    assert share >= close
    assert sum(late) >= missed * len(late)


def test_other_futures_leave_the_run_as_it_is() -> None:
    tried, untried = waits(USERS, every=20, futures=3), waits(USERS)
    assert [each.waited for each in tried] == [each.waited for each in untried]
    assert {len(each.futures) for each in tried} == {0, 3}
    assert all(future > 0 for each in tried for future in each.futures)


def test_the_best_prediction_is_close_to_most() -> None:
    assert part_close(best([1.0, 10.0, 12.0, 15.0]), [1.0, 10.0, 12.0, 15.0]) == 0.75
    assert part_close(best([0.1, 0.4, 1.0]), [0.1, 0.4, 1.0]) == pytest.approx(2 / 3)

"""When a worker's reports are due. Times are seconds."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.delivery import (
    BLOCKS_SECONDS,
    GATHER_SECONDS,
    NEW_QUEUE_SECONDS,
    QUEUE_CHANGE_SECONDS,
    REPORT_SECONDS,
    ReportPacing,
)


def told(waiting: int = 0, now: float = 100.0) -> ReportPacing:
    """The pacing of a stream on which both reports have just been sent."""
    pacing = ReportPacing()
    pacing.load_told(waiting, now)
    pacing.progress_told(now)
    return pacing


def test_a_new_stream_begins_with_the_load() -> None:
    pacing = ReportPacing()
    assert pacing.due == pacing.load_due == -math.inf
    assert pacing.progress_due == math.inf
    pacing.check_invariants()
    pacing.requests_changed()
    assert pacing.progress_due == -math.inf
    pacing.load_told(3, now=100.0)
    assert pacing.load_due == 100 + NEW_QUEUE_SECONDS, "a scheduler to which the queue is new"


def test_the_load_is_reported_after_its_time_and_progress_only_where_there_is_some() -> None:
    pacing = told()
    assert pacing.due == pacing.load_due == 100 + REPORT_SECONDS
    assert pacing.progress_due == math.inf


def test_a_queue_that_begins_is_reported_soon_and_again_when_it_may_be_a_second_old() -> None:
    pacing = told()
    pacing.queue_is(3)
    assert pacing.load_due == 100 + QUEUE_CHANGE_SECONDS
    pacing.load_told(3, now=101.0)
    assert pacing.load_due == 101 + NEW_QUEUE_SECONDS
    pacing.queue_is(9)
    assert pacing.load_due == 101 + NEW_QUEUE_SECONDS, "whether requests wait has not changed"
    pacing.load_told(9, now=102.0)
    assert pacing.load_due == 102 + REPORT_SECONDS


def test_a_queue_that_ends_is_reported_soon() -> None:
    pacing = told(waiting=3)
    pacing.queue_is(0)
    assert pacing.load_due == 100 + QUEUE_CHANGE_SECONDS
    pacing.load_told(0, now=101.0)
    assert pacing.load_due == 101 + REPORT_SECONDS


def test_an_urgent_load_waits_for_nothing_but_the_shortest_time_between_reports() -> None:
    pacing = told()
    pacing.load_is_urgent()
    assert pacing.load_due == 100 + GATHER_SECONDS
    pacing.queue_is(1)
    assert pacing.load_due == 100 + GATHER_SECONDS, "what is due is never put off"


def test_blocks_wait_longer_than_requests_and_go_with_them() -> None:
    pacing = told()
    pacing.blocks_changed()
    assert pacing.progress_due == pacing.due == 100 + BLOCKS_SECONDS
    pacing.requests_changed()
    assert pacing.progress_due == 100 + GATHER_SECONDS
    pacing.blocks_changed()
    assert pacing.progress_due == 100 + GATHER_SECONDS, "what is due is never put off"
    pacing.progress_told(now=101.0)
    assert pacing.progress_due == math.inf


@given(st.lists(st.tuples(st.sampled_from(["queue", "urgent", "requests", "blocks", "wait"]), st.integers(0, 2))))
def test_no_report_comes_late_nor_sooner_than_gathering_allows(events: list[tuple[str, int]]) -> None:
    """A worker that sends what is due when it is due is never silent for longer than a report's time."""
    pacing, now = told(now=0.0), 0.0
    loads, progress = [0.0], [0.0]
    for kind, number in events:
        match kind:
            case "queue":
                pacing.queue_is(number)
            case "urgent":
                pacing.load_is_urgent()
            case "requests":
                pacing.requests_changed()
            case "blocks":
                pacing.blocks_changed()
            case "wait":
                now = max(now, pacing.due)
                if pacing.load_due <= now:
                    pacing.load_told(number, now)
                    loads.append(now)
                if pacing.progress_due <= now:
                    pacing.progress_told(now)
                    progress.append(now)
        pacing.check_invariants()
    for times in (loads, progress):
        assert all(later - earlier >= GATHER_SECONDS - 1e-9 for earlier, later in itertools.pairwise(times))
    assert all(later - earlier <= REPORT_SECONDS + 1e-9 for earlier, later in itertools.pairwise(loads))

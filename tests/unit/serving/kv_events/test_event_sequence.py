"""Numbered batches that come in order, early, again or from a new life of their publisher."""

from serving.kv_events.core.event_sequence import BatchOrder, EventSequence


def test_batches_are_compared_with_the_next_number_and_the_latest_time() -> None:
    sequence = EventSequence()
    assert sequence.kind(0, 5.0) is BatchOrder.NEXT
    assert sequence.kind(1, 5.0) is BatchOrder.EARLY
    sequence.passed(0, 5.0)
    sequence.passed(1, 6.0)
    assert sequence.next == 2
    kinds = {(number, time): sequence.kind(number, time) for number in (0, 1, 2, 3) for time in (5.0, 6.0, 7.0)}
    assert {key for key, kind in kinds.items() if kind is BatchOrder.REPEATED} == {
        (0, 5.0),
        (0, 6.0),
        (1, 5.0),
        (1, 6.0),
    }
    assert {key for key, kind in kinds.items() if kind is BatchOrder.RESTARTED} == {(0, 7.0), (1, 7.0)}
    assert {key for key, kind in kinds.items() if kind is BatchOrder.NEXT} == {(2, 5.0), (2, 6.0), (2, 7.0)}


def test_after_a_reset_the_publisher_counts_from_the_beginning() -> None:
    sequence = EventSequence()
    sequence.passed(7, 9.0)
    sequence.reset()
    assert (sequence.next, sequence.kind(0, 1.0)) == (0, BatchOrder.NEXT)

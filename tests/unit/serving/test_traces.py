"""Finding remembered calls by ids, some of which callers choose."""

from dataclasses import replace

from fairlead.outcomes import Outcome
from serving.telemetry.records import CallRecord
from serving.telemetry.traces import Traces

CALL = CallRecord(
    client="ann", app="default", request_id="r1", model="m", outcome=Outcome.COMPLETED, received=1, finished=2
)


def test_nobody_hides_anothers_call_by_using_its_id() -> None:
    traces = Traces()
    borrowed = replace(CALL, client="eve", request_id="r2", interaction="r1")
    claimed = replace(CALL, client="eve", request_id="r3", caller_request_id="r1")
    other = replace(CALL, request_id="r4", caller_request_id="r5")
    for call in (CALL, borrowed, claimed, other):
        traces.call(call)
    assert traces.find("r1") == [CALL, borrowed, claimed]
    assert traces.find("r5") == [other]


def test_the_newest_calls_come_first_and_a_clients_own_alone() -> None:
    traces = Traces()
    alone = replace(CALL, request_id="r2")
    first, second = (replace(CALL, request_id=f"r{number}", interaction="walk") for number in (3, 4))
    for call in (first, CALL, replace(CALL, client="eve"), alone, second):
        traces.call(call)
    assert [call.request_id for call in traces.newest()] == ["r4", "r2", "r1", "r1"]
    assert traces.of_client("ann", 2) == [first, second, alone]
    assert traces.of_client("nobody", 2) == []

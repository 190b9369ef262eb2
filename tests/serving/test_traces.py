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

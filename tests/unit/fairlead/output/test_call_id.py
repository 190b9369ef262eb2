"""The ids of tool calls."""

from fairlead.output.call_id import call_id


def test_an_id_is_the_beginning_of_its_requests_id_and_the_number_of_the_call() -> None:
    assert call_id("0123456789abcdef", 0) == "012345600"
    assert call_id("0123456789abcdef", 255) == "0123456ff"

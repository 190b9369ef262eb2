"""What gateways tell each other of calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.seen_calls import MOST_CHARACTERS, SeenCall, message_of, seen_calls

TEXTS = st.text(max_size=MOST_CHARACTERS)
CALLS = st.builds(SeenCall, TEXTS, TEXTS, TEXTS, st.binary(max_size=44).map(bytes.hex), TEXTS)
CALL = SeenCall("client", "app", "chat", "00ff", "digest")


@given(st.lists(CALLS, max_size=5))
def test_calls_that_are_told_are_heard(calls: list[SeenCall]) -> None:
    assert seen_calls(message_of(calls)) == calls


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"150",
        b'{"client": "app"}',
        *(
            json.dumps([fields]).encode()
            for fields in (
                CALL[:4],
                [*CALL, "more"],
                [*CALL[:4], None],
                [*CALL[:4], "x" * (MOST_CHARACTERS + 1)],
                [*CALL[:3], "0f0", "digest"],
                [*CALL[:3], "no digits", "digest"],
            )
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_whole(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        seen_calls(message)

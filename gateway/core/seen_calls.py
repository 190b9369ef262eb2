"""What gateways tell each other of the calls that they have admitted, so that each of them continues an interaction.

It is a digest of what a chat asked, by which the chat's next request is known, and the token of the interaction, which
is the proof that it is in progress. A receiver verifies the token as one that a caller has sent.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

MOST_CHARACTERS = 512  # of each field; names of a tenant, a user, an app and an interaction have at most 128


class SeenCall(NamedTuple):
    """An admitted call that another one may continue."""

    client: str
    app: str
    interaction: str  # empty for the first request of a chat without tools
    token: str  # for the interaction's next call, in hexadecimal digits; empty if none follows
    asked: str  # digest of what the chat asked; empty if nothing is known by it


def message_of(calls: Sequence[SeenCall]) -> bytes:
    """Return the message that tells of `calls`."""
    return json.dumps(calls, separators=(",", ":")).encode()


def seen_calls(message: bytes) -> list[SeenCall]:
    """Return the calls of which a message tells; raise ValueError if it is malformed or of another version."""
    try:
        calls = [SeenCall(*fields) for fields in json.loads(message)]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no list of calls: {error}") from error
    for call in calls:
        if not all(isinstance(field, str) and len(field) <= MOST_CHARACTERS for field in call):
            raise ValueError(f"a field is no text, or longer than {MOST_CHARACTERS} characters")
        bytes.fromhex(call.token)
    return calls

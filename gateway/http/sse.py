"""The format of server-sent events."""

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def event(data: bytes) -> bytes:
    """Return an event without a name."""
    return b"data: %s\n\n" % data


def named_event(name: bytes, data: bytes) -> bytes:
    """Return an event with a name."""
    return b"event: %s\ndata: %s\n\n" % (name, data)

"""The parts of request bodies that a picker holds until it has enough of them to choose an endpoint."""

# A longer body is placed by its beginning, and its rest is passed on as it comes.
MOST_HELD = 4 * 1024 * 1024
MOST_TOGETHER = 64 * 1024 * 1024  # bytes, in all bodies
SHARE = 8  # a body may hold this part of what is free, so that uploads that fill the budget leave room for short ones
HOLD_SECONDS = 5.0  # a slower upload is placed by what has arrived of it


class HeldBodies:
    """The budget for the bodies of all requests. A body above its share is placed by its beginning; none is refused."""

    def __init__(self) -> None:
        self.held = 0  # bytes

    def hold(self, size: int) -> None:
        """Count `size` more bytes."""
        self.held += size

    def release(self, size: int) -> None:
        """Count `size` bytes as passed on."""
        self.held -= size

    def is_enough(self, size: int) -> bool:
        """Return whether a body of which `size` bytes are held must be placed by them."""
        return size >= min(MOST_HELD, max(0, MOST_TOGETHER - self.held) // SHARE)

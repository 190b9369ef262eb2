"""Why a request gets no endpoint."""


class Refused(Exception):
    """A request is answered with the HTTP `status` and the word `reason`, in place of being sent to an engine."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def no_endpoint(message: str) -> Refused:
    """Return the refusal of a request for which there is no endpoint."""
    return Refused(503, "no-endpoint", message)

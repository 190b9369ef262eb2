"""A caller over HTTP."""

from collections.abc import Callable

from fairlead.errors import FairleadError
from gateway.call import CallRequest, Receive
from gateway.core.call_commands import Accepted, Finished, Message
from gateway.core.coalescer import OutputChunk
from gateway.tenants import Credentials


class HttpCaller:
    """The caller of one call; `pass_on` writes a chunk or returns False, `break_off` ends the answer as it is."""

    def __init__(
        self,
        credentials: Credentials,
        receive: Receive[CallRequest],
        pass_on: Callable[[OutputChunk], bool],
        break_off: Callable[[FairleadError], None],
    ) -> None:
        self.credentials = credentials
        self.receive = receive
        self.error: FairleadError | None = None  # with which the call is to end
        self._pass_on = pass_on
        self._break_off = break_off

    def write(self, message: Message) -> bool:
        """See CallerPort. HTTP has no message that says that a call is accepted."""
        match message:
            case OutputChunk():
                return self._pass_on(message)
            case Accepted():
                return True
            case Finished():
                return False

    def refuse(self, error: FairleadError) -> None:
        """See CallerPort."""
        self.error = error

    def hang_up(self, error: FairleadError) -> None:
        """See CallerPort."""
        self.error = error
        self._break_off(error)

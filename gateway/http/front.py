"""One front: callers over HTTP."""

from collections.abc import Callable

from fairlead.errors import FairleadError
from gateway.admission import Admission, Receive
from gateway.call import Call
from gateway.core.call_commands import Accepted, Finished, Message
from gateway.core.coalescer import OutputChunk
from gateway.credentials import Credentials
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.request import CallRequest


class HttpFront:
    """The caller of one call; `pass_on` writes a chunk or returns False, `break_off` ends the answer as it is."""

    def __init__(
        self,
        admission: Admission,
        receive: Receive[CallRequest],
        credentials: Credentials,
        pass_on: Callable[[OutputChunk], bool],
        break_off: Callable[[FairleadError], None],
    ) -> None:
        self.error: FairleadError | None = None  # with which the call is to end
        self._admission = admission
        self._receive = receive
        self._credentials = credentials
        self._pass_on = pass_on
        self._break_off = break_off

    async def admit(self, call: Call) -> AdmittedRequest:
        """See Front."""
        return await self._admission.admit(self._receive, self._credentials, call)

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """See Front."""
        return await self._admission.encode(admitted, call)

    def write(self, message: Message) -> bool:
        """See Front. HTTP has no message that says that a call is accepted."""
        match message:
            case OutputChunk():
                return self._pass_on(message)
            case Accepted():
                return True
            case Finished():
                return False

    def refuse(self, error: FairleadError) -> None:
        """See Front."""
        self.error = error

    def hang_up(self, error: FairleadError) -> None:
        """See Front."""
        self.error = error
        self._break_off(error)

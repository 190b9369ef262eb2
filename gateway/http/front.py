"""One front: callers over HTTP."""

from collections.abc import Callable

from fairlead.errors import FairleadError
from gateway.admission import Admission, Receive
from gateway.call import Call
from gateway.credentials import Credentials
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.request import CallRequest


class HttpFront:
    """The caller of one call; `abort` breaks its connection."""

    def __init__(
        self,
        admission: Admission,
        receive: Receive[CallRequest],
        credentials: Credentials,
        abort: Callable[[], None],
    ) -> None:
        self.error: FairleadError | None = None  # with which the call is to end
        self._admission = admission
        self._receive = receive
        self._credentials = credentials
        self._abort = abort

    async def admit(self, call: Call) -> AdmittedRequest:
        """See Front."""
        return await self._admission.admit(self._receive, self._credentials, call)

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """See Front."""
        return await self._admission.encode(admitted, call)

    def refuse(self, error: FairleadError) -> None:
        """See Front."""
        self.error = error

    def hang_up(self, error: FairleadError) -> None:
        """See Front."""
        self.error = error
        self._abort()

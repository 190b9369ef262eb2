"""What the driver of a call asks of the protocol by which the call came."""

from typing import Protocol

from fairlead.errors import FairleadError
from gateway.call import Call
from gateway.core import call_commands as commands
from gateway.prepared_request import AdmittedRequest, PreparedRequest


class Front(Protocol):
    """One caller, independent of its protocol. The last two methods are called at most once, at the end of the call."""

    async def admit(self, call: Call) -> AdmittedRequest:
        """Admit the call and return its request; raise the FairleadError that refuses it."""

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """Return the request with its prompt tokenized; raise FairleadError."""

    def write(self, message: commands.Message) -> bool:
        """Write `message` now and return True, or return False: then `messages` yields it. It yields every Finished."""

    def refuse(self, error: FairleadError) -> None:
        """Set the error with which the call ends once `messages` is exhausted."""

    def hang_up(self, error: FairleadError) -> None:
        """End the call with `error` although the caller has not taken the last message."""

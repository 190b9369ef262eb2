"""The calls that a gateway serves at the moment, whichever front they came by."""

from fairlead.errors import FairleadError
from gateway.call import Call
from gateway.call_log import CallLog
from gateway.core.held_bytes_limiter import HeldBytesLimiter
from gateway.driver import CallDriver
from gateway.front import Front
from gateway.upstream.cluster import Cluster


class CallsInProgress:
    """Makes the driver of each call, and keeps it until the call has ended."""

    def __init__(
        self, cluster: Cluster, call_log: CallLog, held_outputs: HeldBytesLimiter, reader_seconds: float
    ) -> None:
        self._cluster = cluster
        self._call_log = call_log
        self._held_outputs = held_outputs
        self._reader_seconds = reader_seconds
        self._drivers: dict[str, CallDriver] = {}  # by request id

    def drive(self, front: Front, call: Call) -> CallDriver:
        """Return the driver of a new call, which its front must begin at once."""
        driver = CallDriver(front, self._cluster, self._call_log, self._held_outputs, call, self._reader_seconds)
        self._drivers[call.request_id] = driver
        call.cleanup.callback(self._drivers.pop, call.request_id)
        return driver

    def end(self, error: FairleadError) -> None:
        """End all calls with `error`, of which each caller is told."""
        for driver in list(self._drivers.values()):
            driver.fail(error)

"""A cancelled task stays cancelled."""

import asyncio


def reraise_cancellation() -> None:
    """Raise CancelledError when the current task is being cancelled; to be called on every AioRpcError.

    grpc.aio can answer a cancelled `await` with the call's own error, if that comes in the same moment. A loop that
    takes it for an error of the peer and tries again would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

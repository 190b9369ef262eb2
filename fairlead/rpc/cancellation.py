"""Protection of a task's cancellation against errors of gRPC calls."""

import asyncio


def reraise_cancellation() -> None:
    """Raise CancelledError if the current task is being cancelled; to be called on every AioRpcError.

    A cancelled `await` of grpc.aio can raise the call's own error if both happen at the same moment. A loop that treats
    this as an error of the peer and tries again would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

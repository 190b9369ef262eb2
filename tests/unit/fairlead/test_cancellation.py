"""A task whose call fails in the moment of its cancellation ends."""

import asyncio

import grpc
import pytest

from fairlead.rpc.cancellation import reraise_cancellation


async def fails_when_cancelled() -> None:
    """What grpc.aio does when both come together."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        metadata = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata) from None


async def test_the_cancellation_is_not_taken_for_an_error_of_the_peer() -> None:
    async def for_ever() -> None:
        while True:
            try:
                await fails_when_cancelled()
            except grpc.aio.AioRpcError:
                reraise_cancellation()

    task = asyncio.create_task(for_ever())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_error_without_cancellation_is_left_alone() -> None:
    reraise_cancellation()


async def test_a_timeout_stays_a_timeout() -> None:
    with pytest.raises(TimeoutError):  # noqa: PT012
        async with asyncio.timeout(0):
            try:
                await fails_when_cancelled()
            except grpc.aio.AioRpcError:
                reraise_cancellation()

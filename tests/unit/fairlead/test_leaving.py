"""Whoever leaves a stream pays for what was generated until then: every way to leave ends the call at the worker."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from fairlead import Cancelled, Client, Stream, SyncClient, SyncStream
from tests.services import Process, Stack, eventually

# 400 s of generation, if nothing ends it.
MAX_TOKENS, STEP_SECONDS = 8000, 0.05


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    try:
        stack.worker("a", engine=f"fake:{STEP_SECONDS}")
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Process:
    return stack.gateway(throttle="none")


def check_it_ended(stack: Stack, gateway: Process, user: str) -> None:
    """The user's call was cancelled, and cost no more than what had been generated."""

    def cancelled() -> list[dict[str, Any]]:
        ended = [line for line in gateway.logged("call ended") if line["client"] == f"default/{user}"]
        return [line for line in ended if line["outcome"] == "CANCELLED"]

    [line] = eventually(cancelled, "the call is cancelled")
    assert 0 < line["output_tokens"] < MAX_TOKENS
    assert line["service"] <= line["prompt_tokens"] + 2 * line["output_tokens"]
    eventually(lambda: stack.requests() == 0, "the worker is free")


async def breaking(stream: Stream) -> None:
    async for _ in stream:
        break


async def raising(stream: Stream) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async for _ in stream:
            raise ZeroDivisionError


async def closing_the_iterator(stream: Stream) -> None:
    chunks = aiter(stream)
    await anext(chunks)
    await chunks.aclose()  # type: ignore[attr-defined]


async def dropping_the_iterator(stream: Stream) -> None:
    chunks = aiter(stream)
    await anext(chunks)
    del chunks


async def closing_the_stream(stream: Stream) -> None:
    chunks = aiter(stream)
    await anext(chunks)
    await stream.aclose()
    with pytest.raises(Cancelled):
        await anext(chunks)


async def leaving_the_block(stream: Stream) -> None:
    async with stream:
        chunks = aiter(stream)
        await anext(chunks)


async def cancelling_from_another_task(stream: Stream) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in stream:
            begun.set()

    reader = asyncio.create_task(read())
    await begun.wait()
    stream.cancel()
    with pytest.raises(Cancelled):
        await reader


async def cancelling_the_task(stream: Stream) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in stream:
            begun.set()

    reader = asyncio.create_task(read())
    await begun.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


WAYS = [
    breaking,
    raising,
    closing_the_iterator,
    dropping_the_iterator,
    closing_the_stream,
    leaving_the_block,
    cancelling_from_another_task,
    cancelling_the_task,
]


@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
async def test_leaving_a_stream_ends_the_call(
    stack: Stack, gateway: Process, leave: Callable[[Stream], Awaitable[None]]
) -> None:
    user = leave.__name__
    async with Client(gateway.address, user=user) as client:
        stream = client.stream("hello", max_tokens=MAX_TOKENS, ignore_eos=True)
        await leave(stream)
        # While the client is open and the stream is referred to: neither's end ends the call.
        await asyncio.to_thread(check_it_ended, stack, gateway, user)
        assert stream.accepted is not None


async def test_a_stream_that_was_left_cannot_be_waited_for(gateway: Process) -> None:
    async with Client(gateway.address) as client:
        stream = client.stream("hello", max_tokens=MAX_TOKENS, ignore_eos=True)
        await breaking(stream)
        with pytest.raises(Cancelled) as caught:
            await stream.wait()
        assert stream.accepted is not None
        assert caught.value.request_id == stream.accepted.request_id
        unbegun = client.stream("hello")
        unbegun.cancel()
        with pytest.raises(Cancelled):
            await unbegun.wait()


def breaking_blocking(stream: SyncStream) -> None:
    for _ in stream:
        break


def raising_blocking(stream: SyncStream) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for _ in stream:
            raise ZeroDivisionError


def closing_the_generator(stream: SyncStream) -> None:
    chunks = iter(stream)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]


def dropping_the_generator(stream: SyncStream) -> None:
    chunks = iter(stream)
    next(chunks)
    del chunks


def closing_blocking(stream: SyncStream) -> None:
    next(stream)
    stream.close()
    with pytest.raises(Cancelled):
        next(stream)


def leaving_the_block_blocking(stream: SyncStream) -> None:
    with stream:
        next(stream)


BLOCKING_WAYS = [
    breaking_blocking,
    raising_blocking,
    closing_the_generator,
    dropping_the_generator,
    closing_blocking,
    leaving_the_block_blocking,
]


@pytest.mark.parametrize("leave", BLOCKING_WAYS, ids=lambda way: way.__name__)
def test_leaving_a_blocking_stream_ends_the_call(
    stack: Stack, gateway: Process, leave: Callable[[SyncStream], None]
) -> None:
    user = leave.__name__
    with SyncClient(gateway.address, user=user) as client:
        stream = client.stream("hello", max_tokens=MAX_TOKENS, ignore_eos=True)
        leave(stream)
        check_it_ended(stack, gateway, user)
        assert stream.accepted is not None


def test_dropping_a_blocking_stream_ends_the_call(stack: Stack, gateway: Process) -> None:
    with SyncClient(gateway.address, user="dropping") as client:
        stream = client.stream("hello", max_tokens=MAX_TOKENS, ignore_eos=True)
        next(stream)
        del stream
        check_it_ended(stack, gateway, "dropping")

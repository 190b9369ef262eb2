"""The SDK against a real stack."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from cli.stack import Stack
from fairlead import Client, FinishReason, Retries, SyncClient
from fairlead.errors import (
    DeadlineExceeded,
    InvalidRequest,
    TooLong,
    Unavailable,
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(workers=2, log_dir=tmp_path_factory.mktemp("logs"), model="fake", engine="fake") as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with Client(stack.gateway, user="ann") as connected:
        yield connected


async def test_generate_chat_and_ids(client: Client) -> None:
    completion = await client.generate("hello", max_tokens=9, ignore_eos=True)
    assert len(completion.token_ids) == 9
    assert completion.text == bytes(completion.token_ids).decode()
    assert completion.finish_reason is FinishReason.LENGTH
    assert (completion.usage.prompt_tokens, completion.usage.output_tokens) == (5, 9)
    assert completion.worker in ("worker-0", "worker-1")
    assert 0 <= completion.timings.time_to_first_token <= completion.timings.duration
    same = await client.generate(list(b"hello"), max_tokens=9, ignore_eos=True)
    assert same.text == completion.text
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    chat = await client.chat(messages, max_tokens=4, ignore_eos=True)
    assert len(chat.token_ids) == 4
    assert chat.usage.system_tokens == len("system: be brief\n")
    rendering: dict[str, Any] = {"continue_final_message": True, "chat_template_kwargs": {"thinking": True}}
    rendered = await client.chat(messages, max_tokens=1, **rendering)
    assert rendered.usage.prompt_tokens == len("system: be brief\nthinking: true\nuser: hello")
    with pytest.raises(InvalidRequest, match=r"chat_template_kwargs\.tools") as caught:
        await client.chat(messages, chat_template_kwargs={"tools": []})
    assert caught.value.field == "prompt.chat.chat_template_kwargs.tools"


async def test_a_stream_comes_in_chunks_that_add_up(client: Client) -> None:
    stream = client.stream("hello", max_tokens=20, ignore_eos=True, each_token=True)
    chunks = [chunk async for chunk in stream]
    assert len(chunks) == 20
    assert "".join(chunk.text for chunk in chunks) == stream.completion.text


async def test_the_stop_string_that_was_met_is_told(client: Client) -> None:
    whole = await client.generate("hello", max_tokens=12, ignore_eos=True)
    stop = whole.text[6:8]
    cut = await client.generate("hello", max_tokens=12, stop=["never this", stop])
    assert (whole.stop_string, cut.stop_string) == ("", stop)
    assert cut.finish_reason is FinishReason.STOP


async def test_errors_are_typed_and_say_what_is_wrong(client: Client) -> None:
    with pytest.raises(InvalidRequest, match=r"temperature.*-1") as bad:
        await client.generate("x", temperature=-1.0)
    assert bad.value.field == "sampling.temperature"
    with pytest.raises(TooLong, match="8192"):
        await client.generate("x", max_tokens=100_000)
    with pytest.raises(InvalidRequest, match="unknown model 'nope'"):
        await client.generate("x", model="nope")
    with pytest.raises(InvalidRequest, match=r"messages\[0\]"):
        client.stream_chat([("user",)])  # type: ignore[list-item]
    with pytest.raises(DeadlineExceeded):
        await client.generate("x", max_tokens=8000, ignore_eos=True, timeout=0.01)


async def test_nobody_at_the_address_is_unavailable() -> None:
    async with Client("127.0.0.1:1", retries=Retries(attempts=0)) as client:
        with pytest.raises(Unavailable):
            await client.generate("x", timeout=60)


async def test_an_interactions_calls_share_one_id_number_themselves_and_end(stack: Stack) -> None:
    gateway = next(process for process in stack.processes if process.name == "gateway")
    user = f"bob-{uuid.uuid4().hex}"
    async with Client(stack.gateway, user=user) as client, client.interaction(app="agent") as interaction:
        await interaction.generate("plan", max_tokens=3)
        await asyncio.gather(*(interaction.generate(f"step {n}", max_tokens=3) for n in range(4)))
        completion = await interaction.chat([("user", "sum up")], max_tokens=3, ignore_eos=True)
        assert len(completion.token_ids) == 3
    calls = [line for line in gateway.log.lines("call ended") if line["client"].endswith(user)]
    assert len(calls) == 6
    assert {line["outcome"] for line in calls} == {"COMPLETED"}
    ends = [line for line in gateway.log.lines("interaction closed") if line["client"].endswith(user)]
    assert [(end["calls"], end["reason"]) for end in ends] == [(6, "end")]


def test_the_blocking_client_does_the_same(stack: Stack) -> None:
    with SyncClient(stack.gateway, user="carl") as client:
        whole = client.generate("hello", max_tokens=9, ignore_eos=True)
        assert "".join(c.text for c in client.stream("hello", max_tokens=9, ignore_eos=True)) == whole.text
        with client.interaction(app="blocking") as interaction:
            first = interaction.generate("one", max_tokens=2, ignore_eos=True)
            chunks = list(interaction.stream_chat([("user", "two")], max_tokens=2, ignore_eos=True))
        assert len(first.token_ids) == sum(len(chunk.token_ids) for chunk in chunks) == 2
        assert [model.workers for model in client.models()] == [2]
        with pytest.raises(InvalidRequest, match="top_p"):
            client.generate("x", top_p=2.0)


def test_the_log_folder_is_where_it_was_asked_for(stack: Stack) -> None:
    names = {process.log.path.name for process in stack.processes}
    assert names == {"scheduler.log", "worker-0.log", "worker-1.log", "gateway.log"}
    assert all(process.log.path.exists() for process in stack.processes)

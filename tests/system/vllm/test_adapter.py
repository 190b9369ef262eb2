"""The adapter beside a real `vllm serve`: exact outputs, failover, cached prefixes and a flood."""

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import grpc
import pytest

from engine_adapter.output_stream import OutputStream
from engine_adapter.vllm_api import VllmApi
from fairlead import Client
from fairlead.prompt import as_prompt
from fairlead.v1 import common_pb2, inference_pb2
from local_worker.core.request import Request as CoreRequest
from local_worker.hugging_face_decoder import REPLACEMENT
from serving.engine_metrics import total
from serving.http_client import HttpClient
from serving.kv_events.messages import KvEvent, StoredBlocks
from serving.sampling_params import SamplingParams
from tests import services
from tests.ports import free_ports
from tests.services import Stack, eventually
from tests.system.faults.load import caller, output_of
from tests.system.faults.small_model import save_small_model
from tests.unit.cli.commands import Command

pytestmark = pytest.mark.e2e
BLOCK = 32
MOST_RUNNING = 4
CALLS = 48  # of the meek client, while the flooder contends
QUANTUM = 64  # about a call's cost, so that a few quanta are little beside CALLS
TOKENS = 60
LINK = 192  # tokens that a link of a chain adds: three quarters of a step
START = 900.0  # seconds in which vLLM starts where other processes compute


class VllmServe:
    """The server, with KV events."""

    def __init__(self, model: Path, log: Path) -> None:
        self.port, events, replay = free_ports(3)
        self.events, self.replay = f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        published = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{events}",
            "replay_endpoint": f"tcp://*:{replay}",
        }
        arguments = {
            "model": model,
            "served-model-name": "small",
            "port": self.port,
            "dtype": "float32",
            "max-num-seqs": MOST_RUNNING,
            "max-num-batched-tokens": 256,
            "block-size": BLOCK,
            "num-gpu-blocks-override": 64,
            "kv-events-config": json.dumps(published),
        }
        flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", *flags]
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, start_new_session=True)

    def await_ready(self) -> None:
        end = time.monotonic() + START
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < end
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/health"):
                return True
        except (URLError, OSError):
            return False

    def complete(self, prompt: str, tokens: int) -> str:
        """What it says to somebody who asks it directly."""
        body = {"model": "small", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        request = Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request) as answer:
            return str(json.load(answer)["choices"][0]["text"])

    def finished(self) -> float:
        """The number of requests that it has answered."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return total(answer.read(), "vllm:request_success_total")

    def kill(self) -> None:
        """Kill the server and the process of its engine."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Fleet:
    """Two servers of one model with an adapter each, a scheduler and a gateway."""

    def __init__(self, directory: Path, model: Path) -> None:
        self.engines = {name: VllmServe(model, directory / f"vllm-{name}.log") for name in ("a", "b")}
        self.stack = Stack(directory, policy="per-client-round-robin")  # each client has calls at both

    def start(self) -> None:
        """Start adapters and gateway when the engines answer."""
        for engine in self.engines.values():
            engine.await_ready()
        for name, engine in self.engines.items():
            self.stack.adapter(
                name,
                engine=f"127.0.0.1:{engine.port}",
                kv_events=f"{engine.events},{engine.replay}",
                max_running=MOST_RUNNING,
                token_budget=256,
                quantum_tokens=QUANTUM,
            )
        self.gateway = self.stack.gateway(throttle="none")

    def close(self) -> None:
        self.stack.close()
        for engine in self.engines.values():
            engine.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "DEADLINE", START)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        fleet = Fleet(directory, save_small_model(directory / "small"))
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.close()


def request_for(text: str, tokens: int = TOKENS) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(
        prompt=as_prompt(text), sampling=common_pb2.SamplingParams(max_tokens=tokens, ignore_eos=True)
    )


def call(fleet: Fleet, text: str, tokens: int = TOKENS) -> list[inference_pb2.GenerateResponse]:
    with caller(fleet.gateway.address) as stub:
        return list(stub.Generate(request_for(text, tokens), timeout=services.DEADLINE))


def test_outputs_are_those_that_the_engine_gives_directly(fleet: Fleet) -> None:
    texts = [f"Once upon a time, number {number}, " + "there was a king " * number for number in range(8)]
    expected = [fleet.engines["a"].complete(text, TOKENS) for text in texts]
    with ThreadPoolExecutor(len(texts)) as callers:
        found = list(callers.map(lambda text: output_of(call(fleet, text))[0], texts))
    assert found == expected


def test_a_long_prompt_is_a_chain_of_requests_and_its_output_is_that_of_one(fleet: Fleet) -> None:
    engines, text = fleet.engines.values(), "A chain: " + "there was a king " * 120
    before = sum(engine.finished() for engine in engines)
    *_, last = responses = call(fleet, text)
    usage = last.finished.usage
    assert usage.prompt_tokens > 2 * LINK
    assert (usage.cached_tokens, usage.service) == (0, usage.prompt_tokens + 2 * TOKENS)
    eventually(
        lambda: sum(engine.finished() for engine in engines) == before + -(-usage.prompt_tokens // LINK),
        "the engine has ended each link and the request",
    )
    assert output_of(responses)[0] == fleet.engines["a"].complete(text, TOKENS)


def test_constraints_are_obeyed(fleet: Fleet) -> None:
    constraints: tuple[tuple[dict[str, Any], str], ...] = (
        ({"regex": "[ab]{3}c"}, "[ab]{3}c"),
        ({"choice": common_pb2.Choices(texts=["yes it is", "no it is not"])}, "yes it is|no it is not"),
        ({"json_schema": '{"type": "integer", "minimum": 10, "maximum": 99}'}, "[1-9][0-9]"),
        ({"grammar": 'start: "a" "b"+ "c"'}, "ab+c"),
    )
    for constraint, pattern in constraints:
        sampling = common_pb2.SamplingParams(max_tokens=100, temperature=1.0, **constraint)
        request = inference_pb2.GenerateRequest(prompt=as_prompt("A word:"), sampling=sampling)
        with caller(fleet.gateway.address) as stub:
            text, _ = output_of(list(stub.Generate(request, timeout=services.DEADLINE)))
        assert re.fullmatch(pattern, text), (constraint, text)
    unknown = common_pb2.SamplingParams(max_tokens=9, json_schema='{"type": "thing"}')
    request = inference_pb2.GenerateRequest(prompt=as_prompt("A word:"), sampling=unknown)
    with caller(fleet.gateway.address) as stub, pytest.raises(grpc.RpcError) as refused:
        list(stub.Generate(request, timeout=services.DEADLINE))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_engines_events_tell_what_is_cached(fleet: Fleet) -> None:
    text = "A long beginning that is the same for all. " * 12
    first = call(fleet, text, 3)[-1].finished.usage
    cached = (first.prompt_tokens - 1) // BLOCK * BLOCK
    assert cached > 0

    def usage_of_a_hit() -> common_pb2.Usage | None:
        usage = call(fleet, text, 3)[-1].finished.usage
        return usage if usage.cached_tokens == cached else None

    usage = eventually(usage_of_a_hit, "the prefix is found")
    assert usage.service == usage.prompt_tokens - cached + 2 * 3


async def test_the_engine_replays_what_it_published_before_somebody_listened(fleet: Fleet) -> None:
    from serving.kv_events.follower import KvFollower

    engine = fleet.engines["b"]
    api = VllmApi(HttpClient(f"127.0.0.1:{engine.port}"))
    early = "What was said before. " * 8
    tokens = (await api.tokenize(model="small", prompt=early, add_special_tokens=True))[:BLOCK]
    await asyncio.to_thread(engine.complete, early, 1)
    stored: list[Sequence[int]] = []
    cleared: list[None] = []

    def apply(events: list[KvEvent]) -> None:
        stored.extend(event.tokens[:BLOCK] for event in events if isinstance(event, StoredBlocks))

    follower = KvFollower(engine.events, engine.replay, apply, lambda: cleared.append(None))
    following = asyncio.create_task(follower.run())
    for number in itertools.count():  # until the subscription has reached the engine and the replay has been read
        await asyncio.to_thread(engine.complete, f"{number} is said now. " * 8, 1)
        if tokens in [list(each) for each in stored]:
            break
    following.cancel()
    assert not cleared


async def test_texts_that_are_cut_within_a_character_go_on_exactly(fleet: Fleet) -> None:
    """With output of an earlier attempt that ends at each place of a text whose characters have several tokens."""
    api = VllmApi(HttpClient(f"127.0.0.1:{fleet.engines['b'].port}"))
    tokens = await api.tokenize(model="small", prompt="so: \N{GRINNING FACE} and \N{BRAIN}!", add_special_tokens=False)
    texts = [""]  # released with so many tokens: a token whose text ends within a character is held back as a whole
    for stop in range(1, len(tokens) + 1):
        text = await api.detokenize(tokens[:stop])
        texts.append(texts[-1] if text.endswith(REPLACEMENT) else text)
    assert len({*texts}) < len(texts), "no place is within a character"
    for cut in range(1, len(tokens)):
        sampling = SamplingParams(max_tokens=1, logit_bias=((tokens[cut], 100.0),))
        request = CoreRequest(
            id="cut",
            client="ann",
            tokens=[tokens[0], *tokens[:cut]],
            prompt_tokens=cut + 1,
            seed_position=cut,
            digests=[],
            chain_seed=0,
            sampling=sampling,
            arrival=cut,
        )
        output = OutputStream(api, request, "small")
        (piece,) = [piece async for piece in output.pieces()]
        assert piece.tokens == [tokens[cut]]
        assert piece.text == texts[cut + 1][len(texts[cut]) :]


async def test_a_flooder_gets_no_more_than_a_client_with_few_calls(fleet: Fleet) -> None:
    """Both always have requests waiting at both adapters; the gap that these measure stays within the bound."""
    finished: Counter[str] = Counter()
    enough = asyncio.Event()

    async def ask(client: Client, user: str, caller: int) -> None:
        for number in itertools.count():
            text = f"{user} {caller} {number} " + "tells a story " * 8
            await client.generate(text, max_tokens=24, ignore_eos=True)
            finished[user] += 1
            if finished["meek"] >= CALLS:
                enough.set()

    gateway = fleet.gateway.address
    async with (
        Client(gateway, user="flood") as flood,
        Client(gateway, user="meek") as meek,
        asyncio.TaskGroup() as group,
    ):
        callers = [(flood, "flood", number) for number in range(48)] + [(meek, "meek", number) for number in range(16)]
        tasks = [group.create_task(ask(*each)) for each in callers]
        await enough.wait()
        gaps = [(0.0, 0.0)]
        while not all(gap for gap, _ in gaps):  # until both adapters have reported one
            members = (await asyncio.to_thread(fleet.stack.status)).cluster.members
            gaps = [(member.load.fairness_gap, member.load.fairness_bound) for member in members]
        for task in tasks:
            task.cancel()
    assert all(gap <= bound for gap, bound in gaps), (gaps, finished)
    # First come, first served, it would be three times as much. It begins with every place of both engines.
    assert finished["flood"] < 2 * finished["meek"]


def test_one_command_puts_fairlead_beside_both(fleet: Fleet, tmp_path: Path) -> None:
    """As README has it; the engines go on with what else asks them."""
    urls = [
        f"http://127.0.0.1:{engine.port}?kv-events={engine.events}&kv-replay={engine.replay}"
        for engine in fleet.engines.values()
    ]
    limits = [f"--worker-arg=--max-running={MOST_RUNNING}", "--worker-arg=--token-budget=256"]
    command = Command(tmp_path)
    up = command.up_with("--beside", ",".join(urls), *limits)
    try:
        up.wait_for("ready: gateway")
        for engine in fleet.engines.values():
            up.wait_for(f"beside http://127.0.0.1:{engine.port}, with KV events from {engine.events}")
        text = "One command, and a long beginning that is the same for all. " * 4
        generated = command.run("generate", text, "--raw", "--max-tokens", str(TOKENS))
        assert generated.returncode == 0, generated.stderr
        output = generated.stdout.rstrip("\n")
        assert output
        assert fleet.engines["a"].complete(text, TOKENS).startswith(output)
    finally:
        up.close()


def test_calls_go_on_elsewhere_when_an_engine_dies(fleet: Fleet) -> None:
    texts = [f"A story that goes on elsewhere, number {number}" for number in range(4)]
    undisturbed = [output_of(call(fleet, text, 200)) for text in texts]
    died = threading.Event()

    def disturbed(text: str) -> tuple[str, list[int]]:
        responses = []
        request = request_for(text, 200)
        request.streaming = inference_pb2.STREAMING_EACH_TOKEN  # else so few responses may hold the whole output
        with caller(fleet.gateway.address) as stub:
            for response in stub.Generate(request, timeout=services.DEADLINE):
                responses.append(response)
                if len(responses) == 5 and responses[0].accepted.worker == "a" and not died.is_set():
                    died.set()
                    fleet.engines["a"].kill()
        return output_of(responses)

    with ThreadPoolExecutor(len(texts)) as callers:
        assert list(callers.map(disturbed, texts)) == undisturbed
    assert died.is_set()

    def serving() -> set[str]:
        members = fleet.stack.status().cluster.members
        return {member.worker for member in members if not member.load.draining}

    eventually(lambda: serving() == {"b"}, "a has left the fleet")

"""The adapter beside a real `vllm serve --grpc`: exact outputs, constraints and cached prefixes."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from engine_adapter.wire import vllm_pb2, vllm_pb2_grpc
from fairlead.prompt import as_prompt
from fairlead.v1 import common_pb2, inference_pb2
from tests import services
from tests.ports import free_ports
from tests.services import Process, Stack, eventually
from tests.system.faults.load import caller, output_of
from tests.system.faults.small_model import save_small_model

SERVICER = Path(sys.prefix) / "grpc"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SERVICER.exists(), reason="smg-grpc-servicer is not installed: make vllm-venv"),
]
BLOCK = 32
TOKENS = 40
START = 900.0  # seconds in which vLLM starts where other processes compute


class GrpcFleet:
    """One server with an adapter, a scheduler and a gateway."""

    def __init__(self, directory: Path) -> None:
        self.model = save_small_model(directory / "small")
        port, events, replay = free_ports(3)
        self.address = f"127.0.0.1:{port}"
        published = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{events}",
            "replay_endpoint": f"tcp://*:{replay}",
        }
        arguments = {
            "model": self.model,
            "served-model-name": "small",
            "host": "127.0.0.1",
            "port": port,
            "dtype": "float32",
            "max-num-seqs": 4,
            "max-num-batched-tokens": 256,
            "block-size": BLOCK,
            "num-gpu-blocks-override": 64,
            "kv-events-config": json.dumps(published),
        }
        flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.grpc_server", "--enforce-eager", *flags]
        self._log = directory / "vllm.log"
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(SERVICER)}
            )
        self.stack = Stack(directory)

    def start(self) -> None:
        """Start adapter and gateway when the engine answers."""
        end = time.monotonic() + START
        with grpc.insecure_channel(self.address) as channel:
            while not self._answers(channel):
                assert self._process.poll() is None, self._log.read_text()[-3000:]
                assert time.monotonic() < end
                time.sleep(0.5)
        self.stack.adapter("a", engine=f"grpc://{self.address}", max_running=128, token_budget=256)
        self.gateway = self.stack.gateway(throttle="none", cache_scope="deployment")

    def _answers(self, channel: grpc.Channel) -> bool:
        try:
            return bool(vllm_pb2_grpc.VllmEngineStub(channel).HealthCheck(vllm_pb2.HealthCheckRequest()).healthy)
        except grpc.RpcError:
            return False

    def call(
        self, prompt: common_pb2.Prompt, gateway: Process | None = None, **sampling: Any
    ) -> list[inference_pb2.GenerateResponse]:
        request = inference_pb2.GenerateRequest(
            prompt=prompt, sampling=common_pb2.SamplingParams(**{"max_tokens": TOKENS, **sampling})
        )
        with caller((gateway or self.gateway).address) as stub:
            return list(stub.Generate(request, timeout=services.DEADLINE))

    def close(self) -> None:
        self.stack.close()
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcFleet]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "DEADLINE", START)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        fleet = GrpcFleet(tmp_path_factory.mktemp("grpc"))
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.close()


def test_outputs_are_those_that_transformers_computes(fleet: GrpcFleet) -> None:
    """More calls at once than the engine tells that it runs, a text and a chat among them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(fleet.model)
    tokenizer = AutoTokenizer.from_pretrained(fleet.model)
    texts = [f"Once upon a time, number {number}, " + "there was a king " * number for number in range(7)]
    turns = [{"role": "user", "content": "What is a tide?"}]
    prompts = [tokenizer.encode(text) for text in texts]
    prompts.append(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False))
    expected = [greedy(model, prompt) for prompt in prompts]
    chat = common_pb2.Chat(messages=[common_pb2.ChatMessage(role="user", content=turns[0]["content"])])
    given = [*map(as_prompt, texts), common_pb2.Prompt(chat=chat)]
    with ThreadPoolExecutor(len(given)) as callers:
        found = list(callers.map(lambda prompt: output_of(fleet.call(prompt, ignore_eos=True)), given))
    assert [tokens for _, tokens in found] == expected
    assert [text for text, _ in found] == [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in expected]


def greedy(model: Any, prompt: list[int]) -> list[int]:
    import torch

    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(TOKENS):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_constraints_are_obeyed(fleet: GrpcFleet) -> None:
    constraints: tuple[tuple[dict[str, Any], str], ...] = (
        ({"regex": "[ab]{3}c"}, "[ab]{3}c"),
        ({"choice": common_pb2.Choices(texts=["yes it is", "no it is not"])}, "yes it is|no it is not"),
        ({"json_schema": '{"type": "integer", "minimum": 10, "maximum": 99}'}, "[1-9][0-9]"),
        ({"grammar": 'start: "a" "b"+ "c"'}, "ab+c"),
    )
    for constraint, pattern in constraints:
        text, _ = output_of(fleet.call(as_prompt("A word:"), max_tokens=100, temperature=1.0, **constraint))
        assert re.fullmatch(pattern, text), (constraint, text)
    with pytest.raises(grpc.RpcError) as refused:
        fleet.call(as_prompt("A word:"), json_schema='{"type": "thing"}')
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stop_token_ends_an_output_and_is_no_part_of_its_text(fleet: GrpcFleet) -> None:
    text, tokens = output_of(fleet.call(as_prompt("A story"), ignore_eos=True))
    place = 5
    assert tokens[place] not in tokens[:place]
    responses = fleet.call(as_prompt("A story"), ignore_eos=True, stop_token_ids=[tokens[place]])
    stopped, found = output_of(responses)
    assert found == tokens[: place + 1]
    assert text.startswith(stopped)
    assert len(stopped) < len(output_of(fleet.call(as_prompt("A story"), ignore_eos=True, max_tokens=place + 1))[0])
    assert responses[-1].finished.finish_reason == common_pb2.FINISH_REASON_STOP


def test_the_engines_events_tell_what_is_cached(fleet: GrpcFleet) -> None:
    prompt = as_prompt("A long beginning that is the same for all. " * 12)
    first = fleet.call(prompt, max_tokens=3, ignore_eos=True)[-1].finished.usage
    cached = (first.prompt_tokens - 1) // BLOCK * BLOCK
    assert cached > 0

    def usage_of_a_hit() -> common_pb2.Usage | None:
        usage = fleet.call(prompt, max_tokens=3, ignore_eos=True)[-1].finished.usage
        return usage if usage.cached_tokens == cached else None

    usage = eventually(usage_of_a_hit, "the prefix is found")
    assert usage.service == usage.prompt_tokens - cached + 2 * 3


def test_cached_prefixes_that_must_be_kept_apart_are_refused_by_name(fleet: GrpcFleet) -> None:
    """The message of the engine has no field for a cache salt."""
    apart = fleet.stack.gateway(throttle="none")
    with pytest.raises(grpc.RpcError) as refused:
        fleet.call(as_prompt("A story"), apart)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "cache_scope: the engine, vllm" in refused.value.details()


def test_the_adapter_knows_what_the_engine_runs_at_once(fleet: GrpcFleet) -> None:
    (member,) = fleet.stack.status().cluster.members
    (model,) = member.models
    assert (model.name, model.max_running, model.block_tokens, model.vocab_size) == ("small", 4, BLOCK, 49152)
    assert model.engine.startswith("vllm ")

"""Workers over vLLM, with one process and with two ranks: real processes that are stopped and killed."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from fairlead.v1 import inference_pb2
from tests import services
from tests.engines import VLLM_DEADLINE, VLLM_SETTINGS
from tests.services import Process, Stack, eventually
from tests.system.faults.load import caller, output_of, request_for
from tests.system.faults.small_model import save_small_model
from tests.system.vllm.lora import save_adapter

CALLS = 4
TOKENS = 150
MARK = 20  # responses of the first call after which a rank of its worker dies


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """With one scheduler."""
    monkeypatch.setattr(services, "DEADLINE", VLLM_DEADLINE)
    stack = Stack(tmp_path)
    yield stack
    stack.close()


def start(stack: Stack, name: str, model: Path | str, ranks: int, **settings: object) -> Process:
    """Start a worker, and wait until it serves."""
    arguments = f"{{enforce_eager: true, tensor_parallel_size: {ranks}}}"
    stack.worker(name, **{**VLLM_SETTINGS, "model": model, "vllm_args": arguments, **settings})
    assert stack.workers[name].address
    return stack.workers[name]


def ranks_of(pid: int) -> list[int]:
    """The processes of vLLM that a worker has started; Python has started another one for it."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [int(child) for file in children for child in file.read_text().split()]
    return [pid for pid in pids if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_gone(pids: list[int]) -> None:
    eventually(lambda: not any(map(is_running, pids)), f"processes {pids} have ended")


def test_calls_go_on_elsewhere_when_a_rank_dies(stack: Stack, model: Path) -> None:
    """With the tokens of the undisturbed run, greedy and sampled, which came from one process and from two ranks."""
    ranks = ranks_of(start(stack, "a", model, ranks=2).pid)
    assert len(ranks) == 2
    start(stack, "b", model, ranks=1)
    assert {member.model.engine.partition(" ")[0] for member in stack.status().cluster.members} == {"vllm"}
    gateway = stack.gateway(throttle="none")
    died = threading.Event()

    with caller(gateway.address) as stub, ThreadPoolExecutor(CALLS) as callers:

        def call(number: int, kills: bool) -> list[inference_pb2.GenerateResponse]:
            request = request_for(f"Once upon a time, number {number}", TOKENS, temperature=float(number % 2))
            request.streaming = inference_pb2.STREAMING_EACH_TOKEN  # else MARK responses may hold the whole output
            responses = []
            for response in stub.Generate(request, timeout=services.DEADLINE):
                responses.append(response)
                if kills and len(responses) == MARK and responses[0].accepted.worker == "a" and not died.is_set():
                    died.set()
                    os.kill(ranks[1], signal.SIGKILL)
            return responses

        first = list(callers.map(lambda number: call(number, False), range(CALLS)))
        assert {responses[0].accepted.worker for responses in first} == {"a", "b"}
        disturbed = list(callers.map(lambda number: output_of(call(number, True)), range(CALLS)))
    assert died.is_set()
    assert disturbed == [output_of(responses) for responses in first]
    assert stack.workers["a"].wait() != 0
    assert_gone(ranks)


def test_calls_go_on_elsewhere_when_a_rank_stands_still(stack: Stack, model: Path) -> None:
    ranks = ranks_of(start(stack, "a", model, ranks=2).pid)
    gateway = stack.gateway(throttle="none")
    with caller(gateway.address) as stub:
        expected = output_of(list(stub.Generate(request_for("Once upon a time", TOKENS), timeout=services.DEADLINE)))
        request = request_for("Once upon a time", TOKENS)
        request.streaming = inference_pb2.STREAMING_EACH_TOKEN
        call = stub.Generate(request, timeout=services.DEADLINE)
        begun = list(itertools.islice(call, MARK))
        os.kill(ranks[1], signal.SIGSTOP)
        start(stack, "b", model, ranks=1)
        responses = [*begun, *call]
    os.kill(ranks[1], signal.SIGCONT)
    assert output_of(responses) == expected
    ended = gateway.logged("call ended")[-1]
    assert (ended["outcome"], ended["worker"], ended["attempts"]) == ("COMPLETED", "b", 2)


def test_calls_name_a_lora_adapter_like_a_model(stack: Stack, model: Path, tmp_path: Path) -> None:
    folder = save_adapter(AutoModelForCausalLM.from_pretrained(model), tmp_path / "variant", rank=8)
    worker = start(stack, "a", f"base={model}", ranks=1, lora=f"variant={folder}")
    [member] = services.eventually(lambda: stack.status().cluster.members, "a member of the cluster")
    assert [served.name for served in member.models] == ["base", "variant"]
    assert len({served.revision for served in member.models}) == 2
    gateway = stack.gateway(throttle="none")
    with caller(gateway.address) as stub:

        def call(name: str) -> tuple[list[int], int]:
            request = request_for("Once upon a time, " * 20, 8, temperature=0.0)
            request.model = name
            responses = list(stub.Generate(request, timeout=services.DEADLINE))
            return output_of(responses)[1], responses[-1].finished.usage.cached_tokens

        base, cached = call("base")
        variant, cached_by_base = call("variant")
        assert (cached, cached_by_base) == (0, 0), "the base's keys and values are not the adapter's"
        assert base != variant
        again, cached = call("variant")
        assert again == variant
        assert cached > 0
    assert worker.terminate() == 0


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_a_worker_leaves_no_process_behind(stack: Stack, model: Path, how: str) -> None:
    worker = start(stack, "a", model, ranks=2)
    ranks = ranks_of(worker.pid)
    assert len(ranks) == 2
    assert getattr(worker, how)() in (0, None)
    assert_gone(ranks)


def test_an_idle_worker_ends_when_a_rank_dies(stack: Stack, model: Path) -> None:
    worker = start(stack, "a", model, ranks=2)
    ranks = ranks_of(worker.pid)
    os.kill(ranks[1], signal.SIGKILL)
    assert worker.wait() != 0
    assert_gone(ranks)

"""A worker with a real model dies in mid-stream: the text is that of the undisturbed run, greedy and sampled."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.v1 import inference_pb2
from tests.services import Stack
from tests.system.faults.load import caller, output_of, request_for
from tests.system.faults.small_model import save_small_model

CALLS = 4
TOKENS = 60
MARK = 6  # responses of the first call after which its worker dies


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small random model with the built-in one's tokenizer."""
    return save_small_model(tmp_path / "small")


def test_the_text_survives_its_worker(stack: Stack, model: Path) -> None:
    settings: dict[str, object] = {"model": model, "dtype": "float32", "kv_tokens": 8192}
    for name in ("a", "b"):
        stack.worker(name, engine="transformers:batch-invariant", **settings)
    gateway = stack.gateway(throttle="none")
    killed: list[str] = []

    with caller(gateway.address) as stub, ThreadPoolExecutor(CALLS) as callers:

        def call(number: int, kills: bool) -> list[inference_pb2.GenerateResponse]:
            request = request_for(f"Once upon a time, number {number}", TOKENS, temperature=float(number % 2))
            responses = []
            for response in stub.Generate(request, timeout=120):
                responses.append(response)
                if kills and number == 0 and len(responses) == MARK:
                    killed.append(responses[0].accepted.worker)
                    stack.workers[killed[-1]].kill()
            return responses

        undisturbed = list(callers.map(lambda number: output_of(call(number, False)), range(CALLS)))
        while not any(line["attempts"] == 2 for line in gateway.logged("call ended")):
            # On a busy machine a worker may have computed everything before its caller has read the first tokens.
            for name in killed[-1:]:
                stack.replace_worker(name, engine="transformers:batch-invariant", **settings)
                stack.await_workers(stub)
            assert list(callers.map(lambda number: output_of(call(number, True)), range(CALLS))) == undisturbed
    assert killed

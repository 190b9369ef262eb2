"""Calls that know what their undisturbed answer is."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from fairlead.outcomes import Outcome
from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests import services


def request_for(text: str, max_tokens: int = 40, temperature: float = 1.0) -> inference_pb2.GenerateRequest:
    """A call whose output depends on nothing but itself."""
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=3, ignore_eos=True)
    return inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text=text), sampling=sampling)


def output_of(responses: list[inference_pb2.GenerateResponse]) -> tuple[str, list[int]]:
    """Text and token ids."""
    text = "".join(response.chunk.text for response in responses)
    return text, unpack_ids(b"".join(response.chunk.token_ids.packed for response in responses))


class Load:
    """Callers one after the other on each of `threads` streams, until the block ends; every outcome is kept."""

    def __init__(self, gateway: str, threads: int, max_tokens: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.finished = threading.Condition()
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._max_tokens = max_tokens
        self._gateway = gateway
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self.outputs: dict[int, set[tuple[str, tuple[int, ...]]]] = {}

    def _run(self) -> None:
        with grpc.insecure_channel(self._gateway) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            while not self._stop.is_set():
                self._call(stub, next(self._numbers) % 8)

    def _call(self, stub: inference_pb2_grpc.InferenceStub, prompt: int) -> None:
        try:
            responses = list(stub.Generate(request_for(f"Story {prompt}", self._max_tokens), timeout=services.DEADLINE))
            outcome = Outcome(responses[-1].finished.outcome).name
            text, tokens = output_of(responses)
        except grpc.RpcError as error:
            outcome, text, tokens = f"{error.code().name}: {error.details()}", "", []
        with self.finished:
            self.outcomes[outcome] += 1
            if tokens:
                self.outputs.setdefault(prompt, set()).add((text, tuple(tokens)))
            self.finished.notify_all()

    def more(self, calls: int) -> None:
        """Wait until so many more calls have ended."""
        with self.finished:
            wanted = self.outcomes.total() + calls
            assert self.finished.wait_for(lambda: self.outcomes.total() >= wanted, timeout=services.DEADLINE), (
                self.outcomes
            )

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def caller(gateway: str) -> Iterator[inference_pb2_grpc.InferenceStub]:
    """The public service."""
    with grpc.insecure_channel(gateway) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


def assert_all_completed(load: Load) -> None:
    """Nothing lost, nothing doubled: one prompt, one answer."""
    assert set(load.outcomes) == {"COMPLETED"}, load.outcomes
    assert all(len(outputs) == 1 for outputs in load.outputs.values())

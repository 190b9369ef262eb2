"""Calls that know what their undisturbed answer is."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

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


class Callers:
    """Calls one after the other on each of `threads` threads, until the block ends; every outcome is counted.

    `caller` opens what the thread of a number calls with, and yields a function that makes a call and returns its end.
    """

    def __init__(self, threads: int, caller: Callable[[int], AbstractContextManager[Callable[[], str]]]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._finished = threading.Condition()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(caller(number),)) for number in range(threads)]

    def _run(self, caller: AbstractContextManager[Callable[[], str]]) -> None:
        with caller as call:
            while not self._stop.is_set():
                outcome = call()
                with self._finished:
                    self.outcomes[outcome] += 1
                    self._finished.notify_all()

    def more(self, calls: int) -> None:
        """Wait until so many more calls have ended."""
        with self._finished:
            wanted = self.outcomes.total() + calls
            assert self._finished.wait_for(lambda: self.outcomes.total() >= wanted, timeout=services.DEADLINE), (
                self.outcomes
            )

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Load(Callers):
    """Calls of a few prompts over gRPC, whose outputs are kept."""

    def __init__(self, gateway: str, threads: int, max_tokens: int) -> None:
        super().__init__(threads, self._caller)
        self._numbers = itertools.count()
        self._max_tokens = max_tokens
        self._gateway = gateway
        self.outputs: dict[int, set[tuple[str, tuple[int, ...]]]] = {}

    @contextmanager
    def _caller(self, _: int) -> Iterator[Callable[[], str]]:
        with caller(self._gateway) as stub:
            yield lambda: self._call(stub, next(self._numbers) % 8)

    def _call(self, stub: inference_pb2_grpc.InferenceStub, prompt: int) -> str:
        try:
            responses = list(stub.Generate(request_for(f"Story {prompt}", self._max_tokens), timeout=services.DEADLINE))
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        text, tokens = output_of(responses)
        self.outputs.setdefault(prompt, set()).add((text, tuple(tokens)))
        return Outcome(responses[-1].finished.outcome).name


@contextmanager
def caller(gateway: str) -> Iterator[inference_pb2_grpc.InferenceStub]:
    """The public service."""
    with grpc.insecure_channel(gateway) as channel:
        yield inference_pb2_grpc.InferenceStub(channel)


def assert_all_completed(load: Load) -> None:
    """Nothing lost, nothing doubled: one prompt, one answer."""
    assert set(load.outcomes) == {"COMPLETED"}, load.outcomes
    assert all(len(outputs) == 1 for outputs in load.outputs.values())

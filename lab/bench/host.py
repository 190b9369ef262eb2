"""The cost of a decoding step beside the forward pass: `python -m lab.bench.host [--batches 1,8,32,64]`.

It runs the whole engine loop of a worker, with the built-in model's tokenizer, around an engine that prepares each
batch as for CUDA (packing, page tables) and then computes nothing. The printed time delays every step if the device has
no other work; a device that already has the next step hides it. The last column is of runs in which only whole turns of
the loop are timed: a timer on a part costs time as well.
"""

import argparse
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

import torch

from fairlead.v1 import worker_pb2
from lab.bench.batcher import BLOCK, KV_TOKENS, PROMPT_TOKENS, make_batcher, make_request
from lab.bench.machine import describe
from local_worker.core.batch import Batch, CompletedStep, StepResult
from local_worker.core.delivery import by_owner
from local_worker.core.events import WorkerUpdate
from local_worker.core.output_text import OutputText
from local_worker.engine.batch_inputs import BatchInputs
from local_worker.engine.kv import LayerShape, PagedKV
from local_worker.engine.model_files import resolve
from local_worker.engine.page_tables import PageLists, PageTables
from local_worker.loop import EngineLoop
from local_worker.tokenizer import HuggingFaceTokenizer
from local_worker.wire import add_events
from serving.model_name import BUILT_IN

STEPS = 400
PARTS = ("plan", "pack", "commit", "texts", "messages and delivery", "whole")


class Clock:
    """The CPU seconds of the thread in each call, by part of the step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def time(self, part: str, target: Any, method: str) -> None:
        """Measure all later calls of `target.method` as `part`."""
        original: Callable[..., Any] = getattr(target, method)

        def timed(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return original(*args)
            finally:
                self.seconds[part].append(time.thread_time() - began)

        setattr(target, method, timed)


class Preparing:
    """An engine that only prepares its batches; its tokens come from `text`, so that the decoder makes real words."""

    ahead = 0

    def __init__(self, text: list[int]) -> None:
        self._text = text
        self._lists = PageLists()
        self._kv = PagedKV([LayerShape(1, 8, 8, 1)], KV_TOKENS // BLOCK, BLOCK, torch.float32, torch.device("cpu"))

    def prepare(self, batch: Batch) -> None:
        """Do the work that precedes the forward pass."""
        inputs = BatchInputs(batch.slices, self._kv)
        PageTables(inputs.slices, BLOCK, self._kv.device, self._lists)

    def launch(self, batch: Batch) -> CompletedStep:
        """See Engine."""
        self.prepare(batch)
        places = (piece.request * 31 + piece.stop for piece in batch.slices if piece.samples)
        return CompletedStep(StepResult(tuple(self._text[place % len(self._text)] for place in places)))

    def check(self) -> None:
        """See Engine."""

    def close(self) -> None:
        """See Engine."""


def measure(batch: int, tokenizer: HuggingFaceTokenizer, timed: Collection[str]) -> dict[str, list[float]]:
    """Return the milliseconds of each call of the timed parts, about one in a step."""
    clock, left, done = Clock(), batch, threading.Event()

    def deliver(update: WorkerUpdate) -> None:
        nonlocal left
        for events in by_owner(update.events).values():
            add_events(worker_pb2.StepEvents(), events)
            left -= len(events.ended)
        if not left:
            done.set()

    batcher, engine = make_batcher(), Preparing(tokenizer.encode(__doc__ or ""))
    loop = EngineLoop(batcher, engine, deliver, lambda error: done.set())
    for part, (target, method) in zip(
        PARTS,
        (
            (batcher, "plan"),
            (engine, "prepare"),
            (batcher, "commit"),
            (loop._machine, "handle"),
            (loop, "_flush"),
            (loop, "_turn"),
        ),
        strict=True,
    ):
        if part in timed:
            clock.time(part, target, method)
    for number in range(batch):
        request = make_request([random.randrange(1000) for _ in range(PROMPT_TOKENS)], STEPS, number)
        request.text = OutputText(tokenizer.decoder())
        loop.submit(request)
    loop.start()
    done.wait()
    loop.stop()
    return {part: [second * 1e3 for second in seconds] for part, seconds in clock.seconds.items()}


def tenth_percentile(values: list[float]) -> float:
    """Return a value that a tenth of `values` are below."""
    return sorted(values)[len(values) // 10]


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.host", description=__doc__)
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = HuggingFaceTokenizer.load(resolve(BUILT_IN))
    print(describe("cpu"))
    print("\nCPU milliseconds per step, best of three runs\n")
    print(f"| batch | {' | '.join(PARTS)} | whole, percentile 10, untimed parts, us |")
    print("|---" * (len(PARTS) + 2) + "|")
    for batch in args.batches:
        best = min((measure(batch, tokenizer, PARTS) for _ in range(3)), key=lambda run: sum(run["whole"]))
        turns = [turn for _ in range(3) for turn in measure(batch, tokenizer, ("whole",))["whole"]]
        parts = [f"{sum(best[part]) / STEPS:.2f}" for part in PARTS]
        print(f"| {batch} | {' | '.join(parts)} | {tenth_percentile(turns) * 1e3:.1f} |", flush=True)


if __name__ == "__main__":
    main()

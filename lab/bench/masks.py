"""What constraints add to a step: decoding steps of the worker engine without and with a mask for each row.

    python -m lab.bench.masks [--model M] [--device cpu|cuda] [--dtype D] [--threads N] [--batches 1,8,32] [--rounds N]

Every request of a batch writes any text, or JSON under the same schema. Runs of both kinds follow each other in one
process. A figure is the median of all decoding steps of its kind, from one commit to the next.
"""

import argparse
import json
import random
import statistics
import time
from collections import deque
from dataclasses import replace

import torch

from lab.bench.batcher import make_batcher, make_request
from lab.bench.contenders import OPTIONS
from lab.bench.engine import load
from lab.bench.machine import describe
from local_worker.core.batch import PendingStep
from local_worker.core.plan import Plan
from local_worker.engine.model_files import resolve
from local_worker.engine.runner import TransformersEngine
from local_worker.sandbox import Sandbox
from local_worker.tokenizer import HuggingFaceTokenizer
from serving.constraint import Constraint
from serving.model_name import BUILT_IN

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "role": {"enum": ["admin", "user", "guest"]},
    },
    "required": ["name", "age", "role"],
    "additionalProperties": False,
}
# No output ends within a run.
PEOPLE = Constraint("json_schema", (json.dumps({"type": "array", "items": PERSON, "minItems": 100}),))
PROMPT_TOKENS = 16
NEW_TOKENS = 33


def step_seconds(engine: TransformersEngine, batch: int, constraint: Constraint | None) -> list[tuple[float, float]]:
    """Return the wall and CPU seconds of each step in which all requests of a batch decode."""
    dice = random.Random(batch)
    batcher = make_batcher()
    for number in range(batch):
        prompt = [dice.randrange(engine.vocab_size) for _ in range(PROMPT_TOKENS)]
        batcher.queue.submit(make_request(prompt, NEW_TOKENS, number, constraint=constraint), 0.0)
    steps: deque[tuple[Plan, PendingStep]] = deque()
    seconds = []
    began = time.perf_counter(), time.process_time()
    while (plan := batcher.plan(0.0)) is not None or steps:
        if plan is not None:
            steps.append((plan, engine.launch(plan.batch)))
        if len(steps) > (engine.ahead if plan is not None else 0):
            done, pending = steps.popleft()
            batcher.commit(done, pending.wait())
            ended = time.perf_counter(), time.process_time()
            if done.batch.tokens == len(done.requests) == batch:
                seconds.append((ended[0] - began[0], ended[1] - began[1]))
            began = ended
    return seconds


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.masks", description=__doc__)
    parser.add_argument("--model", default=BUILT_IN, help="built-in name, path or hub id of the model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = HuggingFaceTokenizer.load(resolve(args.model))
    model = load(args.model, args.device, getattr(torch, args.dtype))
    engine = TransformersEngine(model, replace(OPTIONS, sandbox=Sandbox(tokenizer.vocabulary)))
    print(describe(args.device))
    print(f"model {args.model}, {args.dtype}, {args.threads} threads, {args.rounds} rounds\n")
    print("| batch | wall ms of a step | with masks | more | CPU ms of a step | with masks | more |")
    print("|---|---|---|---|---|---|---|")
    for batch in args.batches:
        plain: list[tuple[float, float]] = []
        masked: list[tuple[float, float]] = []
        for _ in range(args.rounds):
            plain += step_seconds(engine, batch, None)
            masked += step_seconds(engine, batch, PEOPLE)
        pairs = zip(zip(*plain, strict=True), zip(*masked, strict=True), strict=True)
        row = [str(batch)]
        for without, with_masks in pairs:
            before, after = statistics.median(without) * 1e3, statistics.median(with_masks) * 1e3
            row += [f"{before:.1f}", f"{after:.1f}", f"{after / before - 1:+.1%}"]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

"""The worker engine against `model.generate` and transformers' continuous batching: same model, same machine, one run.

    python -m lab.bench.engine [--model M] [--device cpu|cuda] [--dtype D] [--threads N] [--batches 1,8,32,64]
    python -m lab.bench.engine --device cuda --dtype bfloat16 --model random:llama-3.1-8b

Each engine runs in its own process (peak memory is the process's), one after the other, for `--rounds` rounds; the
shortest of each time counts. The decode time is that of a whole run less that of a run of one token; the prefill time
is that of one request's first token.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from lab.bench.batcher import PROMPT_TOKENS, make_batcher, make_request
from lab.bench.contenders import CONTENDERS, Run
from lab.bench.machine import describe, memory_bandwidth
from lab.bench.shapes import RANDOM, SHAPES, random_model
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.events import RequestTokens
from local_worker.engine.model_files import resolve
from serving.model_name import BUILT_IN

PREFILLS = (128, 2048)


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: a batch that decodes, or one prompt."""

    batch: int
    prompt_tokens: int
    new_tokens: int

    @property
    def name(self) -> str:
        """The name of the case in the table."""
        return f"decode, batch {self.batch}" if self.new_tokens > 1 else f"prefill, {self.prompt_tokens} tokens"

    def prompts(self, vocabulary: int) -> list[list[int]]:
        """Return token ids of prompts that share no prefix."""
        dice = random.Random(self.batch * 10_000 + self.prompt_tokens)
        return [[dice.randrange(vocabulary) for _ in range(self.prompt_tokens)] for _ in range(self.batch)]


@dataclass(frozen=True, slots=True)
class Figure:
    """The wall and CPU seconds of one engine for one case, and for its first tokens alone."""

    seconds: float
    cpu_seconds: float
    first_seconds: float
    first_cpu_seconds: float

    def best(self, other: "Figure") -> "Figure":
        """Return the shortest of each time, also of the first tokens, because disturbances only lengthen a run."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Figure(*(min(pair) for pair in pairs))

    def tokens_per_second(self, case: "Case") -> float:
        """Return the decoded tokens per second, or those of the prompt."""
        if case.new_tokens > 1:
            return case.batch * (case.new_tokens - 1) / (self.seconds - self.first_seconds)
        return case.batch * case.prompt_tokens / self.seconds

    def cpu(self, case: "Case") -> float:
        """Return the CPU seconds of the same tokens."""
        return self.cpu_seconds - (self.first_cpu_seconds if case.new_tokens > 1 else 0)


def measure(run: Run, case: Case, vocabulary: int) -> Figure:
    """Time one run of the case and one run of a single token per request, after a short one that compiles kernels."""
    prompts = case.prompts(vocabulary)
    run(prompts, 2)
    return Figure(*timed(run, prompts, case.new_tokens), *timed(run, prompts, 1))


def timed(run: Run, prompts: Sequence[Sequence[int]], new_tokens: int) -> tuple[float, float]:
    """Return the wall and CPU seconds of one run."""
    began, cpu_began = time.perf_counter(), time.process_time()
    run(prompts, new_tokens)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began, time.process_time() - cpu_began


def contend(name: str, args: argparse.Namespace) -> None:
    """Measure one engine in this process, and print its figures as JSON."""
    torch.set_num_threads(args.threads)
    model = load(args.model, args.device, getattr(torch, args.dtype))
    vocabulary, read = model.get_input_embeddings().num_embeddings, bytes_read(model)
    run = CONTENDERS[name](model.eval())
    run(Case(2, 40, 2).prompts(vocabulary), 2)  # warm up
    figures = {case.name: asdict(measure(run, case, vocabulary)) for case in cases(args)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    print(json.dumps({"figures": figures, "peak_bytes": peak, "bytes_read": read}))


def load(model: str, device: str, dtype: torch.dtype) -> Any:
    """Load a model by name, path or hub id, or make one of random weights."""
    if model.startswith(RANDOM):
        return random_model(model.removeprefix(RANDOM), device, dtype)
    loaded: Any = AutoModelForCausalLM.from_pretrained(resolve(model), dtype=dtype)
    return loaded.to(device)


def bytes_read(model: Any) -> int:
    """Return the bytes of weights that a decode step reads; the input embedding counts only if it is the output
    layer."""
    parameters = model.num_parameters()
    if not model.config.get_text_config().tie_word_embeddings:
        parameters -= model.get_input_embeddings().weight.numel()
    return int(parameters * model.dtype.itemsize)


def cases(args: argparse.Namespace) -> list[Case]:
    """Return the cases to measure."""
    decodes = [Case(batch, PROMPT_TOKENS, args.new_tokens) for batch in args.batches]
    return [*decodes, *(Case(1, tokens, 1) for tokens in PREFILLS)]


def compete(args: argparse.Namespace) -> None:
    """Measure all engines in turn, then print the table."""
    best: dict[str, dict[str, Figure]] = {name: {} for name in CONTENDERS}
    peaks: dict[str, int] = {}
    read = 0
    for _ in range(args.rounds):
        for name in CONTENDERS:
            command = [sys.executable, "-m", "lab.bench.engine", *sys.argv[1:], "--contender", name]
            out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
            peaks[name], read = max(peaks.get(name, 0), out["peak_bytes"]), out["bytes_read"]
            for case, values in out["figures"].items():
                figure = Figure(**values)
                best[name][case] = figure.best(best[name].get(case, figure))
    print(describe(args.device))
    print(f"model {args.model}, {args.dtype}, {args.threads} threads, best of {args.rounds} rounds\n")
    print_table(args, best)
    print("\npeak memory: " + ", ".join(f"{name} {peaks[name] / 1e9:.2f} GB" for name in CONTENDERS))
    print(f"plan + commit, batch 64: {step_overhead():.2f} ms per step")
    bandwidth = memory_bandwidth(args.device, args.threads)
    print(f"memory bandwidth (read): {bandwidth / 1e9:.1f} GB/s; a step reads {read / 1e9:.2f} GB of weights")
    for case in cases(args):
        if case.new_tokens > 1:
            steps = best["fairlead"][case.name].tokens_per_second(case) / case.batch
            print(f"{case.name}: weights alone at {steps * read / bandwidth:.0%} of the bandwidth")


def print_table(args: argparse.Namespace, best: dict[str, dict[str, Figure]]) -> None:
    """Print tokens per second, and the ratios to both other engines."""
    print("| case | fairlead tok/s | generate | continuous batching | vs generate | vs CB | CPU s (three in order) |")
    print("|---|---|---|---|---|---|---|")
    for case in cases(args):
        row = [best[name][case.name] for name in CONTENDERS]
        ours, plain, continuous = (figure.tokens_per_second(case) for figure in row)
        cpu = " / ".join(f"{figure.cpu(case):.1f}" for figure in row)
        print(
            f"| {case.name} | {ours:.1f} | {plain:.1f} | {continuous:.1f}"
            f" | {ours / plain:.2f} | {ours / continuous:.2f} | {cpu} |"
        )


def step_overhead(batch: int = 64, steps: int = 200) -> float:
    """Return the milliseconds per step of plan and commit, with queue policy, while `batch` requests decode."""
    batcher = make_batcher()
    for number, prompt in enumerate(Case(batch, PROMPT_TOKENS, 2).prompts(1000)):
        batcher.queue.submit(make_request(prompt, steps + 2 * batch, number), 0.0)
    while len(advance(batcher)) < batch:
        pass
    began = time.perf_counter()
    for _ in range(steps):
        advance(batcher)
    return (time.perf_counter() - began) / steps * 1e3


def advance(batcher: Batcher) -> Sequence[RequestTokens]:
    """Run one step with an engine that takes no time."""
    plan = batcher.plan(0.0)
    assert plan is not None
    return batcher.commit(plan, StepResult(tuple(7 for piece in plan.batch.slices if piece.samples)))


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.engine", description=__doc__)
    shapes = ", ".join(RANDOM + name for name in SHAPES)
    parser.add_argument("--model", default=BUILT_IN, help=f"name, path or hub id; random weights: {shapes}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contender", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        contend(args.contender, args)
    else:
        compete(args)


if __name__ == "__main__":
    main()

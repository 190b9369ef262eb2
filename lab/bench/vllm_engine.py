"""The worker's two engines and vLLM alone: our engine, vLLM's executor under our batcher, and vLLM's own engine loop.

    python -m lab.bench.vllm_engine [--model M] [--device cpu|cuda] [--dtype D] [--threads N] [--batches 1,8,32,64]

Same models and cases as `lab.bench.engine`, in an environment with vLLM (`make vllm-venv`). On a CPU vLLM runs eagerly;
its prefix cache is off. Each contender runs in its own process, one after the other; the shortest of each time counts.
The host's part of a step is the CPU time of the thread that schedules, outside of vLLM's executor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from lab.bench.batcher import KV_TOKENS, PROMPT_TOKENS
from lab.bench.contenders import Run, drive, fairlead
from lab.bench.engine import Case, Figure, cases, load, measure
from lab.bench.machine import describe
from lab.bench.shapes import RANDOM, SHAPES
from local_worker.engine.model_files import resolve
from local_worker.engine.vllm.environment import prepare, read_arguments
from serving.model_name import BUILT_IN

BLOCK = 32  # vLLM's attention on a CPU needs a multiple of it
MOST_RUNNING = 64
TOKEN_BUDGET = 512
MEMORY_FRACTION = 0.4


class ExecutorTime:
    """The thread's CPU seconds in an executor of vLLM, and the number of steps; it replaces the executor's methods."""

    def __init__(self, executor: Any) -> None:
        self.seconds = 0.0
        self.steps = 0
        executor.execute_model = self._timed(executor.execute_model, 1)
        executor.sample_tokens = self._timed(executor.sample_tokens, 0)

    def _timed(self, method: Callable[..., Any], steps: int) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - began
                self.steps += steps

        return timed


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender's run, the size of its vocabulary, and the executor of vLLM if it has one."""

    run: Run
    vocabulary: int
    executor: Any = None

    def host_milliseconds(self, case: Case) -> float | None:
        """Return the CPU time per step outside of the executor, or None without one."""
        if self.executor is None:
            return None
        prompts, inside = case.prompts(self.vocabulary), ExecutorTime(self.executor)
        began = time.thread_time()
        self.run(prompts, case.new_tokens)
        return (time.thread_time() - began - inside.seconds) / inside.steps * 1e3


def ours(args: argparse.Namespace) -> Contender:
    """Make our engine."""
    model = load(args.model, args.device, getattr(torch, args.dtype)).eval()
    return Contender(fairlead(model), model.get_input_embeddings().num_embeddings)


def vllm_arguments(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the model's folder, and vLLM's arguments for it; random weights are made by vLLM."""
    arguments = {"enforce_eager": args.device == "cpu", **args.vllm_args}
    if not args.model.startswith(RANDOM):
        return str(resolve(args.model)), arguments
    config, folder = SHAPES[args.model.removeprefix(RANDOM)], tempfile.mkdtemp()
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    return folder, {**arguments, "load_format": "dummy"}


def executor(args: argparse.Namespace) -> Contender:
    """Make vLLM's executor under our batcher."""
    from local_worker.engine.vllm.arguments import VllmOptions
    from local_worker.engine.vllm.executor import VllmEngine

    options = VllmOptions(
        max_running=MOST_RUNNING,
        token_budget=TOKEN_BUDGET,
        block_tokens=BLOCK,
        kv_tokens=KV_TOKENS,
        memory_fraction=MEMORY_FRACTION,
        dtype=args.dtype,
    )
    folder, arguments = vllm_arguments(args)
    engine = VllmEngine(folder, options, arguments)
    engine.ahead = min(engine.ahead, args.ahead)
    return Contender(partial(drive, engine, block_tokens=BLOCK), engine.vocab_size, engine._executor)


def alone(args: argparse.Namespace) -> Contender:
    """Make vLLM's own engine loop, which runs in this process as well."""
    from vllm import LLM, SamplingParams

    folder, arguments = vllm_arguments(args)
    llm = LLM(
        model=folder,
        dtype=args.dtype,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        block_size=BLOCK,
        num_gpu_blocks_override=KV_TOKENS // BLOCK + 1,
        max_num_seqs=MOST_RUNNING,
        max_num_batched_tokens=TOKEN_BUDGET,
        gpu_memory_utilization=MEMORY_FRACTION,
        **arguments,
    )

    def run(prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == new_tokens for output in outputs)

    core = llm.llm_engine.engine_core.engine_core
    return Contender(run, llm.llm_engine.model_config.get_vocab_size(), core.model_executor)


CONTENDERS: dict[str, Callable[[argparse.Namespace], Contender]] = {
    "ours": ours,
    "executor": executor,
    "vLLM alone": alone,
}


def contend(name: str, args: argparse.Namespace) -> None:
    """Measure one contender in this process, and print its figures as JSON."""
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    prepare()
    torch.set_num_threads(args.threads)
    contender = CONTENDERS[name](args)
    contender.run(Case(2, 40, 2).prompts(contender.vocabulary), 2)  # warm up
    figures = {case.name: asdict(measure(contender.run, case, contender.vocabulary)) for case in cases(args)}
    largest = Case(max(args.batches), PROMPT_TOKENS, args.new_tokens)
    print(json.dumps({"figures": figures, "host": contender.host_milliseconds(largest)}))


def compete(args: argparse.Namespace) -> None:
    """Measure all contenders in turn, then print the table."""
    best: dict[str, dict[str, Figure]] = {name: {} for name in CONTENDERS}
    hosts: dict[str, float] = {}
    load_before = os.getloadavg()[0]
    for _ in range(args.rounds):
        for name in CONTENDERS:
            command = [sys.executable, "-m", "lab.bench.vllm_engine", *sys.argv[1:], "--contender", name]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
            out = json.loads(next(line for line in reversed(lines) if line.startswith(b"{")))
            if out["host"] is not None:
                hosts[name] = min(hosts.get(name, out["host"]), out["host"])
            for case, values in out["figures"].items():
                figure = Figure(**values)
                best[name][case] = figure.best(best[name].get(case, figure))
    print(describe(args.device))
    settings = f"model {args.model}, {args.dtype}, {args.threads} threads, best of {args.rounds} rounds"
    print(f"{settings}; load {load_before:.1f} at the start\n")
    print_table(args, best)
    parts = ", ".join(f"{name} {milliseconds:.2f} ms" for name, milliseconds in hosts.items())
    print(f"\nhost's part of a step, batch {max(args.batches)}: {parts}")


def print_table(args: argparse.Namespace, best: dict[str, dict[str, Figure]]) -> None:
    """Print tokens per second, and CPU seconds, of the three contenders."""
    print("| case | ours tok/s | executor | vLLM alone | executor / alone | ours / alone | CPU s (three in order) |")
    print("|---|---|---|---|---|---|---|")
    for case in cases(args):
        row = [best[name][case.name] for name in CONTENDERS]
        own, under, single = (figure.tokens_per_second(case) for figure in row)
        cpu = " / ".join(f"{figure.cpu(case):.1f}" for figure in row)
        ratios = f"{under / single:.2f} | {own / single:.2f}"
        print(f"| {case.name} | {own:.1f} | {under:.1f} | {single:.1f} | {ratios} | {cpu} |")


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.vllm_engine", description=__doc__)
    shapes = ", ".join(RANDOM + name for name in SHAPES)
    parser.add_argument("--model", default=BUILT_IN, help=f"built-in name or path; random weights: {shapes}")
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="the installed vLLM must be built for it"
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--vllm-args",
        type=read_arguments,
        default={},
        help="arguments of vLLM's engine, as in the worker's option, for both contenders with vLLM",
    )
    parser.add_argument("--ahead", type=int, default=1, help="the most steps that the executor runs ahead")
    parser.add_argument("--contender", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        contend(args.contender, args)
    else:
        compete(args)


if __name__ == "__main__":
    main()

"""The worker's two engines and vLLM alone: our engine, vLLM's executor under our batcher, and vLLM's own engine loop.

    python -m bench.vllm_engine [--model M] [--dtype D] [--threads N] [--batches 1,8,32,64] [--rounds 2]

Same model and cases as `bench.engine`, in an environment with vLLM (`make vllm-venv`). vLLM runs eagerly, without its
prefix cache. Each contender runs in its own process, one after the other; the shortest of each time counts.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import torch

from bench.batcher import KV_TOKENS
from bench.contenders import Run, drive, fairlead
from bench.engine import Case, Figure, cases, load, measure
from bench.machine import describe
from local_worker.engine.model_files import resolve
from local_worker.engine.vllm.environment import prepare
from serving.model_name import BUILT_IN

BLOCK = 32  # vLLM's attention on a CPU needs a multiple of it
MOST_RUNNING = 64
TOKEN_BUDGET = 512
MEMORY_FRACTION = 0.4


def ours(args: argparse.Namespace) -> tuple[Run, int]:
    """Return a run of our engine, and the size of the vocabulary."""
    model = load(args.model, "cpu", getattr(torch, args.dtype)).eval()
    return fairlead(model), model.get_input_embeddings().num_embeddings


def executor(args: argparse.Namespace) -> tuple[Run, int]:
    """Return a run of vLLM's executor under our batcher."""
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
    engine = VllmEngine(str(resolve(args.model)), options, {"enforce_eager": True})
    return partial(drive, engine, block_tokens=BLOCK), engine.vocab_size


def alone(args: argparse.Namespace) -> tuple[Run, int]:
    """Return a run of vLLM's own engine loop."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(resolve(args.model)),
        dtype=args.dtype,
        enforce_eager=True,
        enable_prefix_caching=False,
        block_size=BLOCK,
        num_gpu_blocks_override=KV_TOKENS // BLOCK + 1,
        max_num_seqs=MOST_RUNNING,
        max_num_batched_tokens=TOKEN_BUDGET,
        gpu_memory_utilization=MEMORY_FRACTION,
    )

    def run(prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == new_tokens for output in outputs)

    return run, llm.llm_engine.model_config.get_vocab_size()


CONTENDERS: dict[str, Callable[[argparse.Namespace], tuple[Run, int]]] = {
    "ours": ours,
    "executor": executor,
    "vLLM alone": alone,
}


def contend(name: str, args: argparse.Namespace) -> None:
    """Measure one contender in this process, and print its figures as JSON."""
    prepare(args.threads)
    torch.set_num_threads(args.threads)
    run, vocabulary = CONTENDERS[name](args)
    run(Case(2, 40, 2).prompts(vocabulary), 2)  # warm up
    print(json.dumps({case.name: asdict(measure(run, case, vocabulary)) for case in cases(args)}))


def compete(args: argparse.Namespace) -> None:
    """Measure all contenders in turn, then print the table."""
    best: dict[str, dict[str, Figure]] = {name: {} for name in CONTENDERS}
    for _ in range(args.rounds):
        for name in CONTENDERS:
            command = [sys.executable, "-m", "bench.vllm_engine", *sys.argv[1:], "--contender", name]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
            figures = json.loads(next(line for line in reversed(lines) if line.startswith(b"{")))
            for case, values in figures.items():
                figure = Figure(**values)
                best[name][case] = figure.best(best[name].get(case, figure))
    print(describe("cpu"))
    print(f"model {args.model}, {args.dtype}, {args.threads} threads, best of {args.rounds} rounds\n")
    print_table(args, best)


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
    parser = argparse.ArgumentParser(prog="python -m bench.vllm_engine", description=__doc__)
    parser.add_argument("--model", default=BUILT_IN, help="built-in name or path")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--contender", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        contend(args.contender, args)
    else:
        compete(args)


if __name__ == "__main__":
    main()

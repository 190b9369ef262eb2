"""Whether torch.compile pays: the engine as it is, with its decoder layers compiled, with the whole model compiled.

    python -m bench.compiled [--model M] [--device cpu|cuda] [--dtype D] [--threads N] [--batches 1,8,32,64]

`layers` fuses what is between the matrix products and the attention, which stay as they are: operators that the
compiler does not look into. All layers share the compiled code. `whole` (CPU only) has the compiler pack the weights
itself, in one graph of the model, beside the copy that the model keeps. All in one process, in turn, for `--rounds`
rounds; of each time the shortest counts.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import nn
from transformers import AttentionInterface

from bench.engine import OPTIONS, PROMPT_TOKENS, Case, Figure, Run, drive, load, measure
from bench.machine import describe
from local_worker.engine.attention import PagedAttention
from local_worker.engine.packed_linear import PackedLinear
from local_worker.engine.runner import TransformersEngine
from serving.model_name import BUILT_IN

ATTENTION = "fairlead_opaque"
FULL = 0  # the window of an attention without one
# What the operators find by number. The numbers come in tensors: code is made anew for each plain one.
_attentions: list[PagedAttention] = []
_linears: list[PackedLinear] = []
_library = torch.library.Library("fairlead_bench", "DEF")  # type: ignore[no-untyped-call]


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, place: torch.Tensor, scaling: float, window: int
) -> torch.Tensor:
    attention, layer = place.tolist()
    module = cast("nn.Module", SimpleNamespace(layer_idx=layer))
    out: torch.Tensor = _attentions[attention](
        module, query, key, value, None, scaling=scaling, sliding_window=window or None
    )[0]
    return out


def _attend_shape(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, place: torch.Tensor, scaling: float, window: int
) -> torch.Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])


def _linear(rows: torch.Tensor, number: torch.Tensor, features: int) -> torch.Tensor:
    out: torch.Tensor = _linears[int(number)](rows)
    return out


def _linear_shape(rows: torch.Tensor, number: torch.Tensor, features: int) -> torch.Tensor:
    return rows.new_empty(*rows.shape[:-1], features)


OPERATORS: tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...] = (
    (
        "attend(Tensor query, Tensor key, Tensor value, Tensor place, float scaling, int window) -> Tensor",
        _attend,
        _attend_shape,
    ),
    ("linear(Tensor rows, Tensor number, int features) -> Tensor", _linear, _linear_shape),
)
for _operator, _kernel, _shape in OPERATORS:
    _name = _operator.partition("(")[0]
    _library.define(_operator)  # type: ignore[no-untyped-call]
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"fairlead_bench::{_name}", _shape, lib=_library)


class OpaqueLinear(nn.Module):
    """A packed layer that the compiler does not look into."""

    def __init__(self, packed: PackedLinear) -> None:
        super().__init__()
        self._features = packed.out_features
        self._number = torch.tensor(len(_linears))
        _linears.append(packed)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_features] to [..., out_features]."""
        out: torch.Tensor = torch.ops.fairlead_bench.linear(rows, self._number, self._features)
        return out


def opaque_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    *,
    scaling: float,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """For AttentionInterface; modules carry a `place`."""
    return torch.ops.fairlead_bench.attend(query, key, value, module.place, scaling, sliding_window or FULL), None


def with_opaque_attention(model: Any) -> TransformersEngine:
    """An engine around `model`, whose attention the compiler does not look into."""
    engine = TransformersEngine(model, OPTIONS)
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.place = torch.tensor([len(_attentions), module.layer_idx])
    _attentions.append(engine._attention)
    AttentionInterface.register(ATTENTION, opaque_attention)
    model.set_attn_implementation(ATTENTION)
    return engine


def layers(model: Any) -> TransformersEngine:
    """Each decoder layer compiled, for any number of tokens."""
    engine = with_opaque_attention(model)
    for layer in model.get_decoder().layers:
        for name, module in list(layer.named_modules()):
            if isinstance(module, PackedLinear):
                layer.set_submodule(name, OpaqueLinear(module))
        layer.compile(dynamic=True)
    engine._graphs = engine._decode_graphs(engine._attention._backend)
    return engine


class Unpacked(nn.Linear):
    """A layer that the engine leaves to the compiler."""


def whole(model: Any) -> TransformersEngine:
    """The model compiled, its weights packed by the compiler."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Unpacked
    torch._inductor.config.freezing = True
    engine = with_opaque_attention(model)
    engine._model = torch.compile(model, dynamic=True)
    return engine


def plain(model: Any) -> TransformersEngine:
    """As a worker serves it."""
    return TransformersEngine(model, OPTIONS)


def warm(name: str, run: Run, sizes: list[Case], vocabulary: int) -> None:
    """Compile what `sizes` need."""
    began, cpu_began = time.perf_counter(), time.process_time()
    for case in sizes:
        run(case.prompts(vocabulary), 3)
    print(
        f"{name}: {time.perf_counter() - began:.0f} s until warm, {time.process_time() - cpu_began:.0f} s of CPU here"
    )


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench.compiled", description=__doc__)
    parser.add_argument("--model", default=BUILT_IN)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32, 64])
    parser.add_argument("--new-tokens", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    makers: dict[str, Callable[[Any], TransformersEngine]] = {"plain": plain, "layers": layers}
    if args.device == "cpu":
        makers["whole"] = whole
    sizes = [Case(batch, PROMPT_TOKENS, args.new_tokens) for batch in args.batches]
    print(f"{describe(args.device)}\nmodel {args.model}, {args.dtype}, {args.threads} threads, best of {args.rounds}\n")
    runs: dict[str, Run] = {}
    for name, make in makers.items():
        model = load(args.model, args.device, getattr(torch, args.dtype)).eval()
        vocabulary = model.get_input_embeddings().num_embeddings
        runs[name] = partial(drive, make(model))
        warm(name, runs[name], sizes, vocabulary)
    others = list(makers)[1:]
    print(f"\n| batch | plain tok/s | {' | '.join(f'{name} | times plain | by CPU | tokens' for name in others)} |")
    print("|---" * (2 + 4 * len(others)) + "|")
    for case in sizes:
        best: dict[str, Figure] = {}
        for _ in range(args.rounds):
            for name, run in runs.items():
                figure = measure(run, case, vocabulary)
                best[name] = figure.best(best.get(name, figure))
        prompts = case.prompts(vocabulary)
        expected, base = runs["plain"](prompts, case.new_tokens), best["plain"]
        cells = [str(case.batch), f"{base.tokens_per_second(case):.1f}"]
        for name in others:
            speed = best[name].tokens_per_second(case)
            same = runs[name](prompts, case.new_tokens) == expected
            cells += [f"{speed:.1f}", f"{speed / base.tokens_per_second(case):.2f}"]
            cells += [f"{base.cpu(case) / best[name].cpu(case):.2f}", "equal" if same else "differ"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

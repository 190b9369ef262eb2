"""The workspace suffices for FlashInfer's planner: its own, where there is an nvcc to compile it, and a naive one."""

import ctypes
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.engine.flashinfer_workspace import workspace_bytes
from local_worker.engine.graph_sizes import GraphSize, graph_sizes
from local_worker.engine.kv import LayerShape
from tests.lock import CACHE, exclusively
from tests.unit.local_worker.engine.prefill_planner import Attention, Device, planned_bytes

ROOT = Path(__file__).parents[4]
H100 = Device(132)
PAGE = 16
# Query heads, key heads, size; tokens of a question and of the cached prefix before it, with which 128 MiB overflow.
OVERFLOWS = {
    "Qwen2.5-3B": (16, 2, 128, 128, 2048),
    "Qwen3-30B-A3B": (32, 4, 128, 128, 1024),
    "64 heads, 8 key heads": (64, 8, 128, 64, 1024),
    "GLM-4-9B": (32, 2, 128, 64, 1024),
    "Starcoder2-7B": (36, 4, 128, 64, 2048),
    "Gemma-2B": (8, 1, 256, 128, 2048),
}
ALWAYS_FIT = {"Llama-3.1-8B": (32, 8, 128), "Qwen2.5-7B": (28, 4, 128)}
OTHERS = {"Falcon-7B": (71, 1, 64), "Starcoder2-3B": (24, 2, 128), "GPT-OSS-20B": (64, 8, 64), "SmolLM2": (9, 3, 64)}
SHAPES = {name: shape[:3] for name, shape in OVERFLOWS.items()} | ALWAYS_FIT | OTHERS
FORMER_BYTES = 128 << 20

Refusal = Callable[[Device, Attention, Sequence[int], Sequence[int], int], str]


def layer(heads: int, kv_heads: int, size: int) -> LayerShape:
    return LayerShape(kv_heads, size, size, query_heads=heads)


@pytest.fixture(scope="session")
def refusal() -> Refusal:
    """What FlashInfer's own planner says of a batch and a workspace of so many bytes: nothing, or why it is refused."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("FlashInfer's planner is compiled with nvcc, which is not installed")
    library = ctypes.CDLL(str(_compiled(nvcc)))

    def refused(device: Device, kind: Attention, queries: Sequence[int], pages: Sequence[int], size: int) -> str:
        text = ctypes.create_string_buffer(500)
        columns = [(ctypes.c_int * (len(column) + 1))(0, *accumulate(column)) for column in (queries, pages)]
        window_left = -1 if kind.window is None else kind.window - 1
        shape = (kind.heads, kind.kv_heads, kind.size, PAGE, window_left, kind.graph_tokens or 0, len(queries))
        failed = library.plan(device.processors, *shape, *columns, ctypes.c_longlong(size), text, len(text))
        return text.value.decode() if failed else ""

    return refused


def _compiled(nvcc: str) -> Path:
    """The planner of the pinned version, compiled once for all checkouts."""
    pins = (ROOT / "constraints" / "gpu.txt").read_text().splitlines()
    pin = next(line for line in pins if line.startswith("flashinfer-python=="))
    library = CACHE / f"{pin.replace('==', '-')}-planner.so"
    with exclusively("planner"), tempfile.TemporaryDirectory() as folder:
        if not library.exists():
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, pin]
            subprocess.run(download, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as file:
                kept = ("flashinfer/data/include/", "flashinfer/data/cccl/")
                file.extractall(folder, [name for name in file.namelist() if name.startswith(kept)])
            data = Path(folder) / "flashinfer" / "data"
            parts = ("include", "cccl/libcudacxx/include", "cccl/cub", "cccl/thrust")
            includes = [f"-I{data / part}" for part in parts]
            options = ["-arch=sm_90a", "-std=c++17", "-Xcompiler", "-fPIC", "-shared", "-cudart", "none", *includes]
            sources = sorted((Path(__file__).parent / "planner").iterdir())
            subprocess.run([nvcc, *options, *sources, "-o", Path(folder) / "planner.so"], check=True)
            shutil.move(Path(folder) / "planner.so", library)
    return library


@pytest.mark.parametrize("name", OVERFLOWS)
def test_ordinary_batches_that_overflowed_the_former_workspace_fit(name: str, refusal: Refusal) -> None:
    heads, kv_heads, size, question, cached = OVERFLOWS[name]
    kind, batch = Attention(heads, kv_heads, size), ([question], [(cached + question) // PAGE])
    assert "Buffer overflow" in refusal(H100, kind, *batch, FORMER_BYTES)
    assert refusal(H100, kind, *batch, workspace_bytes([layer(heads, kv_heads, size)], H100.processors, ())) == ""


@pytest.mark.parametrize("name", ALWAYS_FIT)
def test_shapes_that_fitted_always_take_no_more_than_before(name: str) -> None:
    assert workspace_bytes([layer(*ALWAYS_FIT[name])], H100.processors, ()) <= FORMER_BYTES


@pytest.mark.parametrize("name", SHAPES)
def test_every_graph_of_every_shape_fits(name: str, refusal: Refusal) -> None:
    sizes = graph_sizes(128, 1 << 17)
    enough = workspace_bytes([layer(*SHAPES[name])], H100.processors, sizes)
    for size in sizes:
        kind = Attention(*SHAPES[name], graph_tokens=size.tokens)
        queries = [size.tokens - size.requests + 1] + [1] * (size.requests - 1)
        assert refusal(H100, kind, queries, [2000 // PAGE] * size.requests, enough) == ""


shapes = st.sampled_from(sorted(SHAPES))
windows = st.none() | st.integers(1, 5000)
requests = st.lists(st.tuples(st.integers(1, 2048), st.integers(0, 20_000)), min_size=1, max_size=40)
devices = st.sampled_from([H100, Device(108), Device(46), Device(170)])


def columns(requests: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [new for new, _ in requests], [-(-(new + cached) // PAGE) for new, cached in requests]


@settings(max_examples=300)
@given(shapes, windows, requests, devices)
def test_the_workspace_suffices_for_any_batch(
    name: str, window: int | None, requests: list[tuple[int, int]], device: Device
) -> None:
    enough = workspace_bytes([layer(*SHAPES[name])], device.processors, ())
    assert planned_bytes(device, Attention(*SHAPES[name], window), *columns(requests), PAGE) <= enough


@settings(max_examples=300)
@given(shapes, windows, st.sampled_from(graph_sizes(64, 1 << 17)), devices, st.data())
def test_the_workspace_suffices_for_any_batch_of_a_graph(
    name: str, window: int | None, size: GraphSize, device: Device, data: st.DataObject
) -> None:
    used = data.draw(st.integers(1, size.requests))
    long = data.draw(st.integers(1, size.tokens - used + 1))
    queries = [long, *[1] * (used - 1), *[0] * (size.requests - used)]
    pages = [data.draw(st.integers(-(-count // PAGE), 2000)) if count else 0 for count in queries]
    enough = workspace_bytes([layer(*SHAPES[name])], device.processors, [size])
    kind = Attention(*SHAPES[name], window, graph_tokens=size.tokens)
    assert planned_bytes(device, kind, queries, pages, PAGE) <= enough


@settings(max_examples=300)
@given(shapes, windows, requests, devices, st.booleans())
def test_the_naive_planner_takes_the_memory_of_the_real_one(
    refusal: Refusal, name: str, window: int | None, requests: list[tuple[int, int]], device: Device, graph: bool
) -> None:
    queries, pages = columns(requests)
    kind = Attention(*SHAPES[name], window, graph_tokens=sum(queries) if graph else None)
    needed = planned_bytes(device, kind, queries, pages, PAGE)
    assert refusal(device, kind, queries, pages, needed + 32) == ""
    if needed > 64:
        assert "Buffer overflow" in refusal(device, kind, queries, pages, needed - 64)

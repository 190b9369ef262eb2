"""The tables that FlashInfer is given, read as its documentation says, lead to the attention that SDPA computes."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.batch_inputs import BatchInputs, lone_slice
from local_worker.engine.kv import LayerShape, PagedKV
from local_worker.engine.page_tables import PageLists, PageTables
from local_worker.engine.sdpa import Sdpa
from tests.unit.local_worker.engine.flashinfer_stand_in import attention

BLOCK, PAGES, SIZE = 4, 64, 8
CPU = torch.device("cpu")
# Chunks as (tokens before, tokens in the step): decoding, whole prompts, later chunks, borders of pages.
BATCHES = {
    "decode": [(0, 1), (3, 1), (4, 1), (15, 1), (16, 1), (30, 1)],
    "prefill": [(0, 2), (0, 4), (0, 9), (0, 16)],
    "chunks": [(4, 4), (5, 3), (11, 6), (16, 16)],
    "mixed": [(7, 1), (0, 5), (12, 7), (23, 1), (0, 1), (8, 8)],
}


def batch(chunks: list[tuple[int, int]]) -> list[Slice]:
    """Requests with pages all over the cache, more of them than they use yet."""
    dice = random.Random(5)
    pages = dice.sample(range(PAGES), PAGES)
    slices = []
    for before, tokens in chunks:
        count = -(-(before + tokens) // BLOCK) + dice.choice((0, 1, 2))
        own, pages = pages[:count], pages[count:]
        slices.append(lone_slice([0] * (before + tokens), before, own, samples=True))
    return slices


@pytest.mark.parametrize("window", [None, 1, 3, 4, 10])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("name", BATCHES)
def test_attention_through_the_tables_is_what_sdpa_computes(
    name: str, heads: tuple[int, int], window: int | None
) -> None:
    torch.manual_seed(2)
    kv = PagedKV([LayerShape(heads[1], SIZE, SIZE, heads[0])], PAGES, BLOCK, torch.float32, CPU)
    kv.keys[0].normal_()
    kv.values[0].normal_()
    inputs = BatchInputs(batch(BATCHES[name]), kv)
    tokens = len(inputs.slots)
    step = LayerStep(
        torch.randn(tokens, heads[0], SIZE),
        torch.randn(tokens, heads[1], SIZE),
        torch.randn(tokens, heads[1], SIZE),
        scaling=0.3,
        window=window,
    )
    kv.write(0, inputs.slots, step.keys, step.values)
    oracle = Sdpa(kv)
    oracle.plan(inputs.slices)
    tables = PageTables(inputs.slices, BLOCK, CPU, PageLists())
    found, _ = attention(
        step.queries,
        (kv.keys[0], kv.values[0]),
        (tables.queries, tables.pages, tables.indices, tables.last_page),
        scaling=0.3,
        window_left=-1 if window is None else window - 1,
    )
    torch.testing.assert_close(found, oracle.attend(0, step), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BATCHES)
def test_tables_are_int32_and_count_what_they_hold(name: str) -> None:
    slices = batch(BATCHES[name])
    tables = PageTables(slices, BLOCK, CPU, PageLists())
    columns = (tables.queries, tables.pages, tables.indices, tables.last_page, tables.lengths)
    assert {column.dtype for column in columns} == {torch.int32}
    assert tables.pages[-1] == len(tables.indices)
    assert tables.queries[-1] == sum(piece.stop - piece.start for piece in slices)
    held = (tables.pages.diff() - 1) * BLOCK + tables.last_page
    assert held.tolist() == tables.lengths.tolist() == [piece.stop for piece in slices]
    assert 1 <= int(tables.last_page.min()) <= int(tables.last_page.max()) <= BLOCK


@given(st.lists(st.dictionaries(st.integers(0, 3), st.integers(1, 40), min_size=1), min_size=1, max_size=8))
def test_the_pages_of_earlier_batches_leave_no_trace(steps: list[dict[int, int]]) -> None:
    """Requests get pages, leave, and come back with other ones."""
    lists, dice = PageLists(), random.Random(0)
    held: dict[int, list[int]] = {}
    for lengths in steps:
        slices = []
        for request, length in lengths.items():
            own = held.setdefault(request, [])
            if dice.random() < 0.3:
                own.clear()  # as after a preemption
            while len(own) * BLOCK < length:
                own.append(dice.randrange(PAGES))
            slices.append(lone_slice([0] * length, length - 1, own, samples=True)._replace(request=request))
        found = PageTables(slices, BLOCK, CPU, lists).indices.tolist()
        assert found == [page for piece in slices for page in piece.pages[: -(-piece.stop // BLOCK)]]

"""The sizes for a GPU, as far as they can be tried without one: models, pages, and loops over an engine without a
model."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.bench.batcher import BLOCK
from lab.bench.gpu.checks import long_prompt, run_ahead
from lab.bench.gpu.contention import Queue, contend
from lab.bench.gpu.scale import FULL, TINY, Scale
from lab.bench.gpu.subject import Subject, decoding, few_layers, prefill
from local_worker.core.batch import Slice
from local_worker.engine.fake import FakeEngine

pytestmark = pytest.mark.slow


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """The subject at full scale, whose engine has no model."""
    subject = Subject(FULL, tmp_path)
    vars(subject)["engine"] = FakeEngine(vocab_size=1000, step_seconds=0.0, block_tokens=BLOCK)
    return subject


def steps(scale: Scale) -> list[list[Slice]]:
    """Every step that the checks time with the scale's model."""
    mixed = decoding(scale.mixed_batch, scale.context)
    free = 1 + max(page for piece in mixed for page in piece.pages)
    return [
        *(decoding(requests, scale.context) for requests in scale.batches),
        *(decoding(requests, context) for requests, context in scale.long_contexts),
        *([prefill(new, cached)] for new, cached in scale.prefills),
        *([*mixed, prefill(chunk, scale.chunk_cached, free)] for chunk in scale.chunks),
    ]


@pytest.mark.parametrize("scale", [FULL, TINY], ids=["full", "tiny"])
def test_every_step_has_pages_of_its_own_within_the_cache(scale: Scale) -> None:
    for step in steps(scale):
        pages = [page for piece in step for page in piece.pages]
        assert len(set(pages)) == len(pages)
        assert max(pages) < scale.kv_tokens // BLOCK
        assert all(len(piece.pages) * BLOCK >= piece.stop for piece in step)


def test_models_with_every_number_of_heads_can_be_made() -> None:
    for heads in FULL.heads:
        config = few_layers(heads)
        assert (config.num_attention_heads, config.num_key_value_heads) == (heads.queries, heads.keys)


def test_all_requests_decode_together_in_the_loop_that_runs_ahead(subject: Subject) -> None:
    period, host = run_ahead._loop(subject)
    assert 0 < host < 1
    assert period > 0


@pytest.mark.parametrize("budget", FULL.budgets)
def test_the_long_prompt_is_computed_in_chunks_while_the_others_decode(subject: Subject, budget: int) -> None:
    queue = replace(long_prompt.queue(FULL), token_budget=budget)
    chunks = FULL.long_prompt / (budget - FULL.decoders)
    gaps = len(long_prompt._gaps(subject, queue)) / FULL.decoders
    assert chunks <= gaps <= chunks + 5


@pytest.mark.parametrize("policy", FULL.policies)
def test_clients_are_served_under_every_policy(subject: Subject, policy: str) -> None:
    queue = Queue(policy, FULL.quantum, FULL.policy_kv_tokens)
    found = contend(subject.engine, queue, FULL.clients[0], subject.engine.vocab_size, seconds=0.2)
    assert found.rate > 0
    assert found.bound is None or found.gap <= found.bound

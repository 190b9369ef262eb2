"""Torch's kernel for sequences of different lengths, called with a slow stand-in for it, gives the model's tokens.

The kernel itself needs a CUDA device; see tests/system/gpu.
"""

import pytest
import torch
from torch.nn.attention.varlen import AuxRequest

from local_worker.engine.kv import LayerShape, PagedKV
from local_worker.engine.runner import TransformersEngine
from local_worker.engine.varlen import Varlen
from tests.unit.local_worker.engine.driving import make_batcher, make_request, run
from tests.unit.local_worker.engine.test_exactness import CONFIGS, OPTIONS, expected_of, make_model, prompts

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
MODELS = ["llama", "llama-mqa", "mistral-window", "gemma3", "gpt-oss"]


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See torch.nn.attention.varlen: the last query of a sequence stands at its last key."""
    assert enable_gqa
    assert return_aux.lse
    assert window_size[1] == 0
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == int(cu_seq_q.diff().max())
    assert max_k == int(cu_seq_k.diff().max())
    assert (len(query), len(key)) == (cu_seq_q[-1], cu_seq_k[-1])
    assert query.is_contiguous()
    group = query.shape[1] // key.shape[1]
    out, sums = torch.empty_like(query), torch.empty(query.shape[1], len(query))
    for (first, stop), (start, end) in zip(cu_seq_q.unfold(0, 2, 1), cu_seq_k.unfold(0, 2, 1), strict=True):
        keys, values = (part[start:end].repeat_interleave(group, dim=1) for part in (key, value))
        at = torch.arange(end - start - (stop - first), end - start)[:, None]
        positions = torch.arange(end - start)
        seen = positions <= at
        if window_size[0] >= 0:
            seen &= positions >= at - window_size[0]
        scores = torch.einsum("qhs,khs->hqk", query[first:stop], keys).mul(scale).masked_fill(~seen, -torch.inf)
        out[first:stop] = torch.einsum("hqk,khs->qhs", scores.softmax(dim=-1), values)
        sums[:, first:stop] = scores.logsumexp(dim=-1)
    return out, sums


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_gathered_contexts_give_the_models_tokens(name: str, ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_worker.engine.varlen.varlen_attn", varlen_attn)
    texts = prompts(6)
    expected = expected_of(name, texts)
    engine = TransformersEngine(make_model(CONFIGS[name]), OPTIONS)
    engine._attention._backend, engine.ahead = Varlen(engine._kv), ahead
    requests = [make_request(text, arrival=number) for number, text in enumerate(texts)]
    assert run(make_batcher(token_budget=11), engine, requests) == expected


def computed(dtype: torch.dtype, key_size: int, value_size: int) -> bool:
    return Varlen.computes(PagedKV([LayerShape(2, key_size, value_size, 4)], 1, 16, dtype, CPU))


def test_other_caches_are_left_to_sdpa() -> None:
    assert computed(torch.bfloat16, 80, 80)
    assert not computed(torch.float32, 64, 64)
    assert not computed(torch.bfloat16, 192, 128)
    assert not computed(torch.float16, 20, 20)
    assert not computed(torch.float16, 512, 512)

"""The built-in model, for real: converted once, loaded, asked."""

import pytest

from local_worker.config import WorkerConfig
from local_worker.model import load_model
from local_worker.prompt import Chat
from serving.sampling_params import SamplingParams
from tests.local_worker.engine.driving import BLOCK, make_batcher, make_request, run


@pytest.mark.model
def test_it_knows_the_capital_of_france() -> None:
    model = load_model(WorkerConfig(secret="s" * 16, threads=2, block_tokens=BLOCK, kv_tokens=64 * BLOCK))
    engine, tokenizer = model.engine, model.tokenizer
    encoded = tokenizer.encode_chat(Chat((("user", "What is the capital of France?"),)))
    batcher = make_batcher(pages=64, eos=tokenizer.eos_token_ids)
    [output] = run(batcher, engine, [make_request(encoded.ids, sampling=SamplingParams(max_tokens=16))])
    decoder = tokenizer.decoder()
    text = "".join(decoder.push(token) for token in output if token not in tokenizer.eos_token_ids) + decoder.flush()
    assert text == "The capital of France is Paris."
    assert output[-1] in tokenizer.eos_token_ids

"""The built-in model, for real: converted once, loaded, asked."""

import pytest

from fairlead.sampling import Sampling
from local_worker.engine.model_files import BUILT_IN, resolve
from local_worker.engine.runner import TransformersEngine
from local_worker.tokenizer import HuggingFaceTokenizer
from tests.local_worker.engine.driving import BLOCK, make_batcher, make_request, run


@pytest.mark.model
def test_it_knows_the_capital_of_france() -> None:
    path = resolve(BUILT_IN)
    engine = TransformersEngine.load(path, kv_tokens=64 * BLOCK, block_tokens=BLOCK, threads=2)
    tokenizer = HuggingFaceTokenizer.load(path)
    encoded = tokenizer.encode_chat([("user", "What is the capital of France?")])
    batcher = make_batcher(pages=64, eos=tokenizer.eos_token_ids)
    [output] = run(batcher, engine, [make_request(encoded.ids, sampling=Sampling(max_tokens=16))])
    decoder = tokenizer.decoder()
    text = "".join(decoder.push(token) for token in output if token not in tokenizer.eos_token_ids) + decoder.flush()
    assert text == "The capital of France is Paris."
    assert output[-1] in tokenizer.eos_token_ids

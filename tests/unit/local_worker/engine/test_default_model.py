"""The built-in model, for real: converted once, loaded, asked."""

import json
from collections.abc import Iterator

import pytest

from local_worker.config import WorkerConfig
from local_worker.model import ServedModel, load_model
from local_worker.prompt import Chat, ChatMessage
from serving.constraint import Constraint
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request, run

QUESTION = ChatMessage("user", "What is the capital of France?")
SHORT = SamplingParams(max_tokens=16)
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    model = load_model(WorkerConfig(secret="s" * 16, block_tokens=BLOCK, kv_tokens=str(64 * BLOCK)))
    yield model
    model.engine.close()
    assert model.sandbox is not None
    model.sandbox.close()


def answer(model: ServedModel, chat: Chat, sampling: SamplingParams = SHORT) -> str:
    """What the model says to `chat`; it must come to an end of its own."""
    tokenizer = model.tokenizer
    batcher = make_batcher(pages=64, eos=tokenizer.eos_token_ids)
    ids = tokenizer.encode_chat(chat).ids
    [output] = run(batcher, model.engine, [make_request(ids, sampling=sampling)])
    assert output[-1] in tokenizer.eos_token_ids
    decoder = tokenizer.decoder()
    return "".join(decoder.push(token) for token in output if token not in tokenizer.eos_token_ids) + decoder.flush()


def test_it_obeys_a_schema(model: ServedModel) -> None:
    properties = {"country": {"type": "string", "maxLength": 20}, "capital": {"enum": ["Paris", "Rome"]}}
    schema = {"type": "object", "properties": properties, "required": ["country", "capital"]}
    constraint = Constraint("json_schema", (json.dumps(schema | {"additionalProperties": False}),))
    said = json.loads(answer(model, Chat((QUESTION,)), SamplingParams(max_tokens=48, constraint=constraint)))
    assert said["capital"] == "Paris"
    assert set(said) == {"country", "capital"}
    assert (
        answer(model, Chat((QUESTION,)), SamplingParams(constraint=Constraint("choice", ("Rome", "Paris")))) == "Paris"
    )


def test_it_knows_the_capital_of_france(model: ServedModel) -> None:
    assert answer(model, Chat((QUESTION,))) == "The capital of France is Paris."


def test_it_goes_on_with_an_answer_that_has_begun(model: ServedModel) -> None:
    begun = ChatMessage("assistant", "The capital of France is")
    continued = Chat((QUESTION, begun), add_generation_prompt=False, continue_final_message=True)
    assert answer(model, continued) == " Paris."

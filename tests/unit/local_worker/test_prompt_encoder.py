"""Sharing of a prompt's blocks: cache scopes, and prefixes that every scope shares."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import TooLong, Unavailable
from fairlead.token_ids import TOKEN_BYTES, pack_ids
from fairlead.v1 import worker_pb2
from local_worker.core.prefix_cache import PrefixCache
from local_worker.prompt import Chat, ChatMessage
from local_worker.prompt_encoder import PromptEncoder
from local_worker.tokenizer import ByteTokenizer
from serving.blocks import unpack_digests
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, make_request

MODEL = "a model"
PROMPTS = PromptEncoder(
    ByteTokenizer(), ByteTokenizer.vocab_size, BLOCK, "a secret", {MODEL: "r1", "adapter": "r1"}, 500
)
IDS = st.lists(st.integers(0, 256), min_size=1, max_size=30)
RULES = ("system", "Answer in one word.")


def digests(ids: list[int], scope: str, public_tokens: int) -> tuple[int, ...]:
    return unpack_digests(PROMPTS.chain(pack_ids(ids), MODEL, scope, public_tokens).digests)


def encoded(scope: str, *messages: tuple[str, str], public: bool = True) -> worker_pb2.EncodeResponse:
    chat = Chat(tuple(ChatMessage(*message) for message in messages))
    return PROMPTS.encode(worker_pb2.EncodeRequest(model=MODEL, cache_scope=scope, public_system=public), chat)


def shared_blocks(one: worker_pb2.EncodeResponse, other: worker_pb2.EncodeResponse) -> int:
    return len(set(unpack_digests(one.digests)) & set(unpack_digests(other.digests)))


@given(IDS, st.integers(0, 40))
def test_scopes_share_public_blocks_and_no_others(ids: list[int], public_tokens: int) -> None:
    public_tokens = min(public_tokens, len(ids))
    one, other = digests(ids, "one", public_tokens), digests(ids, "other", public_tokens)
    public = public_tokens // BLOCK
    assert one[:public] == other[:public]
    assert not set(one[public:]) & set(other)
    assert one == digests(ids, "one", public_tokens)


@given(IDS, IDS)
def test_blocks_after_different_public_prefixes_differ(one: list[int], other: list[int]) -> None:
    rest = [7] * BLOCK
    one, other = one * BLOCK, other * BLOCK
    last = digests(one + rest, "a", len(one))[-1], digests(other + rest, "a", len(other))[-1]
    assert (last[0] == last[1]) == (one == other)


def test_generated_blocks_go_on_in_the_scope_of_the_caller() -> None:
    """Also where the prompt ends with its public part: the next worker's chain of prompt and output is the same."""
    prompt, output = [1] * 2 * BLOCK, [2] * (BLOCK + 1)
    chain = PROMPTS.chain(pack_ids(prompt), MODEL, "acme", len(prompt))
    request = make_request(prompt, sampling=SamplingParams(max_tokens=99))
    request.digests = list(unpack_digests(chain.digests))
    request.chain_seed, request.public_blocks = chain.seed, chain.public_blocks
    cache = PrefixCache(40, BLOCK)
    assert cache.admit(request, request.budget) is not None
    request.tokens += output
    request.computed = len(request.tokens)
    cache.publish(request, request.computed)
    assert tuple(request.digests) == digests(prompt + output, "acme", len(prompt))
    assert request.digests[-1] != digests(prompt + output, "other", len(prompt))[-1]


def test_the_first_system_message_is_public_where_that_is_asked_for_and_no_other() -> None:
    chat = RULES, ("system", "my secret"), ("user", "my secret")
    one, other = encoded("one", *chat), encoded("other", *chat)
    assert one.public_tokens == len("system: Answer in one word.\n") == other.public_tokens
    assert shared_blocks(one, other) == one.public_tokens // BLOCK
    assert len(one.digests) == len(one.token_ids) // TOKEN_BYTES // BLOCK * 8
    private = encoded("other", *chat, public=False)
    assert private.public_tokens == shared_blocks(one, private) == 0


def test_user_messages_are_never_public() -> None:
    for messages in (
        [("user", "one"), RULES],  # a system message that does not lead
        [("user", "system: Answer in one word.\n")],
    ):
        assert encoded("one", *messages).public_tokens == 0


def test_a_text_that_is_certainly_too_long_is_not_tokenized() -> None:
    with pytest.raises(TooLong, match="which no text of more than 500 characters makes; got 501"):
        PROMPTS.encode(worker_pb2.EncodeRequest(model=MODEL), "x" * 501)
    with pytest.raises(TooLong, match="got 600"):
        encoded("", ("user", "x" * 300), ("user", "x" * 300))
    assert len(PROMPTS.encode(worker_pb2.EncodeRequest(model=MODEL), "x" * 500).token_ids) == 2000


@given(IDS, IDS, st.integers(0, 40))
def test_models_share_no_blocks(one: list[int], other: list[int], public_tokens: int) -> None:
    """Neither public ones, nor those of equal tokens, scope and revision; nor do revisions of one model."""
    revised = replace(PROMPTS, revisions={MODEL: "r2"})
    for prompts, model in ((PROMPTS, "adapter"), (revised, MODEL)):
        for ids in (one, other):
            chain = prompts.chain(pack_ids(ids), model, "one", min(public_tokens, len(ids)))
            assert not set(unpack_digests(chain.digests)) & set(digests(one, "one", min(public_tokens, len(one))))


def test_a_prompt_is_encoded_for_the_model_that_it_names() -> None:
    def encode(model: str) -> worker_pb2.EncodeResponse:
        return prompts.encode(worker_pb2.EncodeRequest(model=model), "x" * BLOCK)

    prompts = replace(PROMPTS, revisions={MODEL: "r1", "adapter": "r7"})
    assert [encode(model).revision for model in (MODEL, "adapter")] == ["r1", "r7"]
    assert encode(MODEL).digests != encode("adapter").digests
    assert encode("") == encode(MODEL)
    with pytest.raises(Unavailable, match="model: 'gpt' is not served by this worker, which serves a model, adapter"):
        encode("gpt")

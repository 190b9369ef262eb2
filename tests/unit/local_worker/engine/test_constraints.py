"""Constrained outputs obey their constraints, and depend on them and on their own tokens alone: not on the batch, on
chunks, preemptions, steps ahead, or the worker at which they go on."""

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
import torch
from transformers import LlamaConfig

import local_worker.engine.matchers
from fairlead.errors import InvalidRequest
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import pack_ids
from local_worker.core.batch import Engine, Slice
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.machine import RequestsAdvanced, SubmitRequest, WorkerMachine
from local_worker.core.request import Request
from local_worker.engine.fake import FakeEngine
from local_worker.engine.followed_output import FollowedOutput
from local_worker.engine.grammars import MOST_CACHED, Grammars
from local_worker.engine.matchers import Matchers
from local_worker.engine.runner import EngineOptions, TransformersEngine
from local_worker.engine.sampling import choose
from local_worker.engine.transfer import upload_bits
from local_worker.sandbox import Sandbox
from local_worker.vocabulary import Vocabulary
from serving.constraint import Constraint
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, Driver, make_batcher, make_request
from tests.unit.local_worker.engine.schemas import is_valid, random_schema
from tests.unit.local_worker.engine.test_exactness import SIZES, VOCAB, make_model
from tests.unit.local_worker.test_constraint_checker import AMBIGUOUS

EOS = 2
ARRIVALS = count()  # an engine knows a request by its arrival, which no two requests of a worker share
# Ids 3 and above are printable characters.
CHARACTERS = [bytes([ord(" ") + token - 3]) if token > 2 else b"" for token in range(VOCAB)]
CHARACTERS[EOS] = b"<eos>"
OBJECT = Constraint("json_schema", ('{"type":"object","properties":{"a":{"type":"string","maxLength":9}}}',))


CLOSING = tuple((token, 3.0) for token in (ord('"') - 29, ord("}") - 29))  # strings and objects end soon


def spelled(tokens: Sequence[int]) -> str:
    return b"".join(CHARACTERS[token] for token in tokens if token != EOS).decode()


def ids(text: str) -> list[int]:
    return [ord(character) - ord(" ") + 3 for character in text]


VOCABULARY = Vocabulary([EOS], CHARACTERS)


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    vocabulary = VOCABULARY.load()
    return Grammars(lambda: vocabulary)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(lambda: VOCABULARY)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def engine(sandbox: Sandbox) -> Iterator[TransformersEngine]:
    options = EngineOptions(kv_tokens=512 * BLOCK, block_tokens=BLOCK, eos_token_ids=(EOS,), sandbox=sandbox)
    engine = TransformersEngine(make_model(LlamaConfig(**SIZES)), options)
    yield engine
    engine.close()


def constrained(
    constraint: Constraint | None, seed: int = 0, *, prompt: str = "Tell me", max_tokens: int = 120, **fields: int
) -> Request:
    sampling = SamplingParams(
        max_tokens=max_tokens, temperature=1.0, seed=seed, constraint=constraint, logit_bias=CLOSING
    )
    return make_request(ids(prompt), arrival=next(ARRIVALS), sampling=sampling, **fields)


def outputs(engine: Engine, requests: Sequence[Request], batcher: Batcher | None = None) -> list[list[int]]:
    driver = Driver(batcher or make_batcher(eos=(EOS,)), engine)
    for request in requests:
        driver.batcher.queue.submit(request, 0.0)
    while driver.turn():
        pass
    return [request.tokens[request.prompt_tokens :] for request in requests]


def schemas(count: int) -> list[Constraint]:
    dice = random.Random(22)
    return [Constraint("json_schema", (json.dumps(random_schema(dice)),)) for _ in range(count)]


@pytest.mark.model
def test_outputs_under_random_schemas_are_valid(
    engine: TransformersEngine, grammars: Grammars, request: pytest.FixtureRequest
) -> None:
    accepted: list[Constraint] = []
    refused: list[str] = []
    for constraint in schemas(request.config.getoption("schemas", 40)):
        try:
            grammars.compile(constraint)
            accepted.append(constraint)
        except InvalidRequest as error:
            refused.append(error.message)
    assert all(re.search("Unsatisfiable|Unimplemented", reason) for reason in refused), refused
    asked = [constrained(constraint, number) for number, constraint in enumerate(accepted)]
    whole = 0
    for constraint, tokens in zip(accepted, outputs(engine, asked), strict=True):
        if tokens[-1] == EOS:
            whole += 1
            [schema] = constraint.texts
            assert is_valid(json.loads(schema), json.loads(spelled(tokens))), (schema, spelled(tokens))
    assert whole > len(accepted) * 0.9, "the others are cut off by max_tokens"


@pytest.mark.model
@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        (Constraint("regex", ("[0-9]{3}-(a|b)+",)), "[0-9]{3}-[ab]+"),
        (Constraint("choice", ("yes", 'no "really" \\', "perhaps")), r'yes|no "really" \\|perhaps'),
        (Constraint("grammar", ('start: "<" word ">"\nword: /[a-z]{2,5}/',)), "<[a-z]{2,5}>"),
        (Constraint("json_object"), r"\{.*\}"),
    ],
    ids=lambda value: value.kind if isinstance(value, Constraint) else "",
)
def test_each_kind_of_constraint_is_obeyed(engine: TransformersEngine, constraint: Constraint, pattern: str) -> None:
    made = outputs(engine, [constrained(constraint, number, max_tokens=200) for number in range(4)])
    ended = [spelled(tokens) for tokens in made if tokens[-1] == EOS]
    assert ended
    assert all(re.fullmatch(pattern, text) for text in ended), ended


def mixed(count: int = 8) -> list[Request]:
    """Requests of which every second one is constrained."""
    constraints = (OBJECT, None, Constraint("regex", ("(ab|c)*d",)), None)
    prompts = ("Tell me of cats and dogs, and of all the other beasts", "Hi")
    return [
        constrained(constraints[number % 4], number, prompt=prompts[number % 2], max_tokens=40)
        for number in range(count)
    ]


def one_by_one(make_engine: Callable[[int], Engine]) -> list[list[int]]:
    return [tokens for request in mixed() for tokens in outputs(make_engine(0), [request])]


@pytest.mark.model
@pytest.mark.parametrize("ahead", [0, 1])
def test_batches_chunks_preemptions_and_steps_ahead_change_nothing(engine: TransformersEngine, ahead: int) -> None:
    alone = one_by_one(lambda _: engine)
    try:
        engine.ahead = ahead
        assert outputs(engine, mixed(), make_batcher(token_budget=7, eos=(EOS,))) == alone
        tight = make_batcher(pages=24, admission=AdmissionMode.OPTIMISTIC, token_budget=9, eos=(EOS,))
        requests = mixed()
        assert outputs(engine, requests, tight) == alone
        fair = make_batcher(
            policy="dlpm", max_running=2, quantum_tokens=4, most_debt_tokens=6, token_budget=9, eos=(EOS,)
        )
        giving_way = mixed()
        assert outputs(engine, giving_way, fair) == alone
    finally:
        engine.ahead = 0
    # Whose depends on when masks are ready.
    assert sum(request.preemptions for request in requests) > 0
    assert sum(request.preemptions for request in giving_way) > 0


@pytest.mark.parametrize("ahead", [0, 1])
def test_the_fake_engine_obeys_whatever_shares_the_batch(sandbox: Sandbox, ahead: int) -> None:
    def make(ahead: int) -> FakeEngine:
        return FakeEngine(VOCAB, 0.0, BLOCK, ahead, sandbox)

    alone = one_by_one(make)
    tight = make_batcher(pages=24, admission=AdmissionMode.OPTIMISTIC, token_budget=9, eos=(EOS,))
    assert outputs(make(ahead), mixed(), tight) == alone
    assert all(re.fullmatch("(ab|c)*d", spelled(tokens)) for tokens in alone[2::4] if tokens[-1] == EOS)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("kind", ["fake", pytest.param("transformers", marks=pytest.mark.model)])
def test_outputs_that_miss_steps_lose_nothing(
    kind: str, ahead: int, sandbox: Sandbox, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(VOCAB, 0.0, BLOCK, 0, sandbox) if kind == "fake" else request.getfixturevalue("engine")
    alone = one_by_one(lambda _: engine)
    monkeypatch.setattr(local_worker.engine.matchers, "LEAST_WAITING_SECONDS", 0.0)
    monkeypatch.setattr(local_worker.engine.matchers, "WAITING_SHARE", 0.0)  # no step waits for a mask
    engine.ahead = ahead
    try:
        tight = make_batcher(pages=24, admission=AdmissionMode.OPTIMISTIC, token_budget=9, eos=(EOS,), policy="dlpm")
        requests = mixed()
        assert outputs(engine, requests, tight) == alone
    finally:
        engine.ahead = 0
    service = sum(account.weighted for account in tight.queue.accounts.clients)
    missed = service - tight.queue.ledger.weighted
    # Masks may be ready before the logits of a real model; a step of the fake engine takes no time.
    assert missed > 0 or (kind == "transformers" and missed == 0), "missed steps are charged"


def steps_of_another(sandbox: Sandbox, constraint: Constraint) -> tuple[int, float]:
    """The steps in which an output of 60 tokens is generated beside 30 under `constraint`, and their processor time."""
    engine, batcher = (
        FakeEngine(VOCAB, 0.001, BLOCK, 0, sandbox),
        make_batcher(pages=4096, token_budget=512, eos=(EOS,)),
    )
    for number in range(30):
        batcher.queue.submit(constrained(constraint, 3 * number, max_tokens=200), 0.0)
    other = constrained(None, 1, max_tokens=60)
    batcher.queue.submit(other, 0.0)
    began, steps = time.thread_time(), 0
    while len(other.tokens) < other.budget:
        plan = batcher.plan(0.0)
        assert plan is not None
        batcher.commit(plan, engine.launch(plan.batch).wait())
        steps += 1
    engine.close()
    return steps, time.thread_time() - began


def test_masks_that_take_long_take_no_step_of_another_output_and_no_time_of_its_steps(sandbox: Sandbox) -> None:
    runs = [[steps_of_another(sandbox, constraint) for constraint in (OBJECT, AMBIGUOUS)] for _ in range(5)]
    assert all(steps == 60 for run in runs for steps, _ in run)
    # The least of each: whatever else a busy machine does makes runs of a hundredth of a second longer.
    seconds, attacked_seconds = (min(seconds for _, seconds in each) for each in zip(*runs, strict=True))
    assert attacked_seconds < 1.5 * seconds


@pytest.mark.model
def test_an_output_goes_on_at_another_worker_as_it_would_have_here(
    engine: TransformersEngine, grammars: Grammars
) -> None:
    [whole] = outputs(engine, [constrained(OBJECT, max_tokens=60)])
    for known in (1, 5, len(whole) - 1):
        rest = constrained(
            OBJECT, max_tokens=60 - known, seed_position=known, prompt="Tell me" + spelled(whole[:known])
        )
        assert outputs(engine, [rest]) == [whole[known:]]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (constrained(Constraint("regex", ("[0-9]+x",)), prompt="Tell me abc", seed_position=3), "satisfy the grammar"),
        (constrained(Constraint("choice", ("a\u00e4",))), "no token continues it"),  # the vocabulary cannot write it
    ],
)
def test_an_output_that_cannot_go_on_ends_with_the_reason_and_its_batch_goes_on(
    sandbox: Sandbox, broken: Request, reason: str
) -> None:
    batcher = make_batcher(eos=(EOS,))
    machine = WorkerMachine(batcher.queue)
    sound = constrained(Constraint("regex", ("[a-z]{3}",)), 1)
    for request in (broken, sound):
        machine.handle(SubmitRequest(request), 0.0)
    engine = FakeEngine(VOCAB, 0.0, BLOCK, 0, sandbox)
    while (plan := batcher.plan(0.0)) is not None:
        machine.handle(RequestsAdvanced(batcher.commit(plan, engine.launch(plan.batch).wait())), 0.0)
        machine.check_invariants()
    first, second = sorted(machine.take_events().ended, key=lambda end: end.request.arrival)
    constraint = broken.sampling.constraint
    assert constraint is not None
    assert (first.request, first.outcome) == (broken, Outcome.REJECTED_INVALID)
    assert first.message.startswith(f"{constraint.field}: the output cannot go on: ")
    assert reason in first.message
    assert (second.request, second.reason) == (sound, FinishReason.STOP)
    assert re.fullmatch("[a-z]{3}", spelled(sound.tokens[sound.prompt_tokens :]))


def test_an_output_that_exceeds_a_limit_ends_with_the_reason_and_no_other_output_does(grammars: Grammars) -> None:
    dear = Constraint("regex", ("[ab]*a[ab]{60}",))
    dice = random.Random(1)
    other = FollowedOutput(dear, grammars, ids("".join(dice.choices("ab", k=100))))
    mask = other.allowed()
    excessive = FollowedOutput(dear, grammars, ids("".join(dice.choices("ab", k=100_000))))
    assert excessive.allowed() is None
    assert "too many expressions" in excessive.failure
    assert other.allowed() == mask
    other.accept(ids("ab"))
    assert other.allowed() is not None
    assert FollowedOutput(dear, grammars, ids("ab")).allowed() is not None, "what others have exceeded is forgotten"


def test_the_end_of_an_output_is_no_failure_for_which_its_constraint_is_compiled_anew(grammars: Grammars) -> None:
    """An engine that runs ahead asks for a mask after the end, before it is known that the output has ended."""
    constraint = Constraint("choice", ("yes", "no"))
    held = grammars.compile(constraint)
    followed = FollowedOutput(constraint, grammars, ids("yes"))
    assert followed.allowed() == bytes([1 << EOS, *[0] * (len(followed.allowed() or b"") - 1)])
    followed.accept([EOS])
    assert followed.allowed() is not None
    assert not followed.failure
    assert grammars.compile(constraint) is held


def one_slice(sampling: SamplingParams) -> Slice:
    return Slice(0, (3,), 0, 1, (0,), samples=True, sampling=sampling, prompt_tokens=1, context=pack_ids((3, 7)))


def test_only_allowed_tokens_are_chosen_whatever_biases_and_penalties_say() -> None:
    logits = torch.zeros(3, 12)
    logits[:, 7] = 100.0
    hostile = (
        SamplingParams(logit_bias=((7, 100.0),)),
        SamplingParams(temperature=1.0, top_p=0.1, repetition_penalty=10.0, frequency_penalty=2.0),
        SamplingParams(temperature=100.0, top_k=1, min_p=1.0),
    )
    slices = [one_slice(sampling) for sampling in hostile]
    only = bytes([0, 0b10])  # token 9
    nobody = torch.empty(0, dtype=torch.int64)
    assert choose(logits, slices, nobody, (), dict.fromkeys(range(3), only)).tolist() == [9, 9, 9]
    assert choose(logits, slices, nobody, (), {1: only}).tolist() == [7, 9, 7], "the others choose freely"


def test_bits_are_unpacked_the_lowest_first() -> None:
    rows = [bytes([0b1, 0b1000_0000]), bytes([0b10, 0])]
    assert upload_bits(rows, torch.device("cpu")).nonzero().tolist() == [[0, 0], [0, 15], [1, 1]]


def test_a_mask_excludes_tokens_that_it_does_not_have_and_no_tokens_of_other_rows() -> None:
    """A model's vocabulary may have more entries than its tokenizer."""
    logits = torch.zeros(2, 21)
    logits[:, 20] = 1.0
    slices = [one_slice(SamplingParams())] * 2
    masks = {1: bytes([0, 0b100])}
    assert choose(logits, slices, torch.empty(0, dtype=torch.int64), (), masks).tolist() == [20, 10]


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint("json_schema", ("{",)), "Expecting property name"),
        (Constraint("json_schema", ("5",)), "must be a JSON object or true, got 5"),
        (Constraint("json_schema", ("[" * 50_000,)), "recursion"),
        (Constraint("json_schema", ('{"type":"thing"}',)), "Invalid type: thing"),
        (Constraint("json_schema", ('{"type":"array","uniqueItems":true}',)), "uniqueItems"),
        (Constraint("json_schema", ('{"contains":{},"x-guidance":{"lenient":true}}',)), "contains"),
        (Constraint("json_schema", ("false",)), "got False"),
        (Constraint("json_schema", ('{"$ref":"http://127.0.0.1/schema"}',)), "is not present in the schema"),
        (Constraint("regex", ("(",)), "unclosed group"),
        (Constraint("grammar", ("start: missing",)), "unknown name"),
        (Constraint("grammar", (" ".join(f'"{number}"' for number in range(9000)),)), "."),
    ],
)
def test_a_constraint_that_cannot_be_compiled_is_refused_with_the_reason(
    grammars: Grammars, constraint: Constraint, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        grammars.compile(constraint)
    assert refused.value.field == constraint.field
    assert len(refused.value.message) < 600


def test_compiled_constraints_are_kept_while_they_are_held_and_the_latest_beyond_that(grammars: Grammars) -> None:
    held = grammars.compile(Constraint("regex", ("held",)))
    for number in range(MOST_CACHED + 1):
        grammars.compile(Constraint("regex", (f"other{number}",)))
    assert grammars.compile(Constraint("regex", ("held",))) is held
    assert len(grammars._recent) == MOST_CACHED
    assert len(grammars._known) <= MOST_CACHED + 1


def test_matchers_forget_requests_that_have_left(sandbox: Sandbox) -> None:
    matchers = Matchers(sandbox)
    batcher = make_batcher(eos=(EOS,))
    engine = FakeEngine(VOCAB, 0.0, BLOCK, 0, sandbox)
    batcher.queue.submit(constrained(Constraint("choice", ("a",))), 0.0)
    while (plan := batcher.plan(0.0)) is not None:
        matchers.follow(plan.batch)
        assert len(matchers._running) == 1
        batcher.commit(plan, engine.launch(plan.batch).wait())
    batcher.queue.submit(constrained(None, 1), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    matchers.follow(plan.batch)
    assert not matchers._running

"""The error tree is closed: one class per outcome, one outcome per class."""

import pytest

from fairlead.errors import ERRORS, FairleadError, InvalidRequest, Retryable, error_for
from fairlead.outcomes import FinishReason, Outcome

FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED]


def leaves(cls: type[FairleadError]) -> list[type[FairleadError]]:
    own = [cls] if "outcome" in vars(cls) and cls is not FairleadError else []
    return own + [leaf for sub in cls.__subclasses__() for leaf in leaves(sub)]


def test_every_failure_has_exactly_one_class() -> None:
    assert sorted(ERRORS) == FAILURES
    assert sorted(cls.outcome for cls in leaves(FairleadError)) == FAILURES


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda outcome: outcome.name)
def test_an_error_is_built_from_its_outcome(outcome: Outcome) -> None:
    error = error_for(outcome, "why", field="prompt", retry_after=2.5)
    assert (type(error), error.outcome, error.message, str(error)) == (ERRORS[outcome], outcome, "why", "why")
    if isinstance(error, Retryable):
        assert error.retry_after == 2.5
    if isinstance(error, InvalidRequest):
        assert error.field == "prompt"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("sampling.json_schema: the output cannot go on: no token continues it", "sampling.json_schema"),
        ("prompt.chat.tools[2].parameters: must be JSON", "prompt.chat.tools[2].parameters"),
        ("prompt: too long", "prompt"),
        ("the prompt: it is too long", ""),
        ("sampling is off", ""),
    ],
)
def test_a_field_that_only_the_message_names_is_the_errors_field(message: str, field: str) -> None:
    error = error_for(Outcome.REJECTED_INVALID, message)
    assert isinstance(error, InvalidRequest)
    assert (error.field, error.message) == (field, message)


def test_an_error_names_its_request_where_there_was_one() -> None:
    error = error_for(Outcome.REJECTED_QUEUE_FULL, "the queue is full")
    error.request_id = "4f"
    assert (str(error), error.message) == ("the queue is full (request 4f)", "the queue is full")


def test_outcomes_and_finish_reasons_are_printed_by_name() -> None:
    assert (str(Outcome.CANCELLED), f"{FinishReason.LENGTH}") == ("CANCELLED", "LENGTH")
    assert (Outcome.CANCELLED, FinishReason.LENGTH) == (10, 2)


def test_an_invalid_request_says_its_field() -> None:
    error = InvalidRequest("must not be empty", "prompt.text")
    assert (str(error), error.field) == ("prompt.text: must not be empty", "prompt.text")
    assert InvalidRequest("cannot be read").message == "cannot be read"

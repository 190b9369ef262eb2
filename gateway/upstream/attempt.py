"""One attempt at a worker, and what the worker says about it."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from fairlead.v1 import common_pb2, worker_pb2

AttemptKey = tuple[str, int]  # the request's id and the attempt's number


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker, or the connection to it, is lost; no further events of this attempt follow."""


@dataclass(frozen=True, slots=True)
class LastTokens:
    """The last tokens of a completed attempt, which came in one message with its end."""

    tokens: worker_pb2.Tokens
    ended: worker_pb2.Ended


Event = worker_pb2.Started | worker_pb2.Tokens | LastTokens | worker_pb2.Ended | WorkerLost


@dataclass(slots=True, eq=False)
class Attempt:
    """One submission to one worker; `receive` is called with the worker's events about it, in order."""

    key: AttemptKey
    is_joined: bool  # whether tokens that come in one message are one event
    receive: Callable[[Event], None]
    on_abort: Callable[["Attempt"], None]

    def abort(self) -> None:
        """Abort the attempt: its worker frees it within a step, and no event follows. Do nothing after its end."""
        self.on_abort(self)


def is_joined(submit: worker_pb2.Submit) -> bool:
    """Return whether the tokens of a submission may be joined.

    Its caller does not want each one alone, and nothing is reported of each one.
    """
    sampling = submit.sampling
    is_reported = sampling.HasField("logprobs") or sampling.HasField("prompt_logprobs")
    return submit.tokens_per_message > 1 and not is_reported


def route(events: worker_pb2.StepEvents, attempts: MutableMapping[AttemptKey, Attempt]) -> None:
    """Pass a worker's message to the attempts that it is about, and remove those that have ended.

    A message holds the tokens of several steps where the stream is slower than they are. Events of attempts that were
    aborted or superseded are ignored.
    """
    for started in events.started:
        if attempt := attempts.get((started.request_id, started.attempt)):
            attempt.receive(started)
    ends = {(ended.request_id, ended.attempt): ended for ended in events.ended}
    for key, tokens in _tokens(events, attempts).items():
        *ready, last = tokens
        for each in ready:
            if attempt := attempts.get(key):
                attempt.receive(each)
        end = ends.get(key)
        if end is not None and end.outcome == common_pb2.OUTCOME_COMPLETED:
            if attempt := attempts.pop(key, None):
                attempt.receive(LastTokens(last, end))
        elif attempt := attempts.get(key):
            attempt.receive(last)
    for key, end in ends.items():
        if attempt := attempts.pop(key, None):
            attempt.receive(end)


def _tokens(
    events: worker_pb2.StepEvents, attempts: Mapping[AttemptKey, Attempt]
) -> Mapping[AttemptKey, Sequence[worker_pb2.Tokens]]:
    """Return the tokens of each attempt that goes on, in order, joined where that is allowed."""
    by_attempt: dict[AttemptKey, list[worker_pb2.Tokens]] = {}
    for tokens in events.tokens:
        key = tokens.request_id, tokens.attempt
        if key in by_attempt:
            by_attempt[key].append(tokens)
        elif key in attempts:
            by_attempt[key] = [tokens]
    return {key: _joined(tokens) if attempts[key].is_joined else tokens for key, tokens in by_attempt.items()}


def _joined(tokens: Sequence[worker_pb2.Tokens]) -> Sequence[worker_pb2.Tokens]:
    """Return the last of `tokens`, which has the service charged so far, with the ids and the text of all."""
    if len(tokens) == 1:
        return tokens
    last = tokens[-1]
    ids, text = b"".join([each.token_ids for each in tokens]), "".join([each.text for each in tokens])
    last.token_ids, last.text = ids, text
    return [last]

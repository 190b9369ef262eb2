"""One attempt at a worker, and the events that the worker's messages are for the call's machine."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import common_pb2, worker_pb2
from gateway.core.call_events import Completed, Ended, Event, OutputChunk, Started

AttemptKey = tuple[str, int]  # the request's id and the attempt's number
_IDS, _TEXT = attrgetter("token_ids"), attrgetter("text")


@dataclass(slots=True, eq=False)
class Attempt:
    """One submission to one worker; `receive` is called with the worker's events about it, in order."""

    key: AttemptKey
    has_logprobs: bool  # otherwise they are not looked for: an empty list costs as much as the tokens
    is_joined: bool  # whether tokens that come in one message are one event
    receive: Callable[[Event], None]
    on_abort: Callable[["Attempt"], None]

    @classmethod
    def of(
        cls, submit: worker_pb2.Submit, receive: Callable[[Event], None], on_abort: Callable[["Attempt"], None]
    ) -> "Attempt":
        """Return the attempt that `submit` begins.

        Tokens are joined unless its caller wants each one alone, or something is reported of each one.
        """
        has_logprobs = submit.sampling.HasField("logprobs") or submit.sampling.HasField("prompt_logprobs")
        is_joined = submit.tokens_per_message > 1 and not has_logprobs
        return cls((submit.request_id, submit.attempt), has_logprobs, is_joined, receive, on_abort)

    def abort(self) -> None:
        """Abort the attempt: its worker frees it within a step, and no event follows. Do nothing after its end."""
        self.on_abort(self)

    def output(self, messages: Sequence[worker_pb2.Tokens]) -> list[OutputChunk]:
        """Return the events that messages of tokens are, which came together; the last one has the service so far."""
        if self.has_logprobs:
            return [OutputChunk(m.token_ids, m.text, m.logprobs, m.prompt_logprobs, m.service) for m in messages]
        if not self.is_joined:
            return [OutputChunk(m.token_ids, m.text, service=m.service) for m in messages]
        ids, text = b"".join(map(_IDS, messages)), "".join(map(_TEXT, messages))
        return [OutputChunk(ids, text, service=messages[-1].service)]


def route(message: worker_pb2.StepEvents, attempts: MutableMapping[AttemptKey, Attempt]) -> None:
    """Pass a worker's message to the attempts that it is about, and remove those that have ended.

    A message holds the tokens of several steps where the stream is slower than they are. The last tokens of a completed
    attempt are one event with its end. Events of attempts that were aborted or superseded are ignored.
    """
    for started in message.started:
        if attempt := attempts.get((started.request_id, started.attempt)):
            attempt.receive(Started(started.cached_tokens, started.service))
    ends = {(ended.request_id, ended.attempt): ended for ended in message.ended}
    for key, tokens in _by_attempt(message.tokens, attempts).items():
        if key not in attempts:
            continue
        *ready, last = attempts[key].output(tokens)
        for each in ready:
            if attempt := attempts.get(key):
                attempt.receive(each)
        end = ends.get(key)
        if end is not None and end.outcome == common_pb2.OUTCOME_COMPLETED:
            if attempt := attempts.pop(key, None):
                attempt.receive(_end(end, last))
        elif attempt := attempts.get(key):
            attempt.receive(last)
    for key, end in ends.items():
        if attempt := attempts.pop(key, None):
            attempt.receive(_end(end, None))


def _by_attempt(
    messages: Iterable[worker_pb2.Tokens], attempts: Mapping[AttemptKey, Attempt]
) -> Mapping[AttemptKey, Sequence[worker_pb2.Tokens]]:
    """Return the tokens of each attempt that goes on, in order."""
    by_attempt: dict[AttemptKey, list[worker_pb2.Tokens]] = {}
    for tokens in messages:
        key = tokens.request_id, tokens.attempt
        if key in by_attempt:
            by_attempt[key].append(tokens)
        elif key in attempts:
            by_attempt[key] = [tokens]
    return by_attempt


def _end(ended: worker_pb2.Ended, tokens: OutputChunk | None) -> Completed | Ended:
    """Return the end of an attempt, with the tokens that came in the same message if it has completed."""
    try:
        outcome = Outcome(ended.outcome)
        finish_reason = FinishReason(ended.finish_reason) if outcome is Outcome.COMPLETED else None
    except ValueError as error:  # of a newer worker; it must not end the session, which carries all other attempts
        return Ended(Outcome.INTERNAL, f"the worker ended the call in a way that the gateway does not know: {error}")
    if outcome is not Outcome.COMPLETED:
        return Ended(outcome, ended.message, ended.usage.service, ended.field, ended.timings)
    if tokens is not None:
        last: OutputChunk | None = tokens._replace(text=tokens.text + ended.text)
    else:
        last = OutputChunk(b"", ended.text) if ended.text else None
    return Completed(finish_reason, ended.usage.service, last, ended.stop_string, ended.timings)

"""Lines of logs of requests to OpenAI-style and Anthropic's APIs, as written by gateways or returned by the batch API.

Each line has the request (at the top or under `body`) and the response (at the top, under `response` or under
`response.body`) of one of the APIs (`simulation.openai_texts`). The fields that are read are `user`, the text, `usage`
(its counts may also stand at the top, as in LiteLLM's spend log), and the time: `timestamp`, `created`, `created_at` or
`startTime`. A time is either seconds (milli-, micro- and nanoseconds since 1970 are recognised, because as seconds they
would be too large) or ISO 8601, in UTC if it names no zone. Without `usage`, lengths are estimated from the text;
without text, calls share no prefix; a line that has neither is refused.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from simulation.iso_times import seconds_since_1970
from simulation.json_fields import Fields, first_of, number, part, shown, whole
from simulation.openai_texts import answer_text, prompt_text
from simulation.text_blocks import TEXT_BLOCK_TOKENS, text_blocks, text_tokens
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceRow

TIMES = ("timestamp", "created", "created_at", "startTime")
LATEST_SECONDS = 1e11  # in the year 5138
INPUT, OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")  # Anthropic's, which `input_tokens` leaves out
PROMPTS, ANSWERS = ("prompt", "messages", "input"), ("choices", "output", "content")
CLIENTS = ("end_user", "user", "api_key")
FAILED = ("failure", "failed")
TEXT_CALLS = ("completion", "responses", "message", "generate_content")  # parts of LiteLLM's names
WHY = {
    "failed": "requests that failed are left out",
    "cached": "requests that LiteLLM answered from its cache are left out",
    "no text": "calls that generate no text are left out",
    "no tokens": "requests whose log counts no tokens at all are left out",
}


class RequestLog:
    """A reader of the lines of a request log. See LineFormat."""

    name = "a request log"
    marks = frozenset({"usage", "body", "response", "prompt", "input", "choices", "output", *INPUT, *OUTPUT})
    fields = marks | {"messages", "content"}

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()

    def rows(self, line: Fields) -> list[TraceRow]:
        why = _unwanted(line)
        if why:
            self._left_out[why] += 1
            return []
        return [_row(line)]

    def left_out(self) -> Iterator[str]:
        """Yield sentences that say how many requests are left out, and why."""
        return (f"{self._left_out[why]} {said}" for why, said in WHY.items() if self._left_out[why])


def _unwanted(line: Fields) -> str:
    if _failed(line):
        return "failed"
    if str(line.get("cache_hit")).lower() == "true":
        return "cached"
    call = str(line.get("call_type") or "")
    if call and not any(name in call for name in TEXT_CALLS):
        return "no text"
    usage = _usage(line)
    counted_nothing = first_of(INPUT, usage)[1] == 0 == first_of(OUTPUT, usage)[1] and not _cached_tokens(usage)
    return "no tokens" if counted_nothing else ""


def _failed(line: Fields) -> bool:
    if "response" in line and line["response"] is None and not _counts(line):
        return True
    response = _response(line)
    _, status = first_of(("status_code", "status"), response, line)
    failed = status >= 400 if isinstance(status, int) else status in FAILED
    return failed or any(fields.get("error") for fields in (line, response, _reply(line)))


def _counts(line: Fields) -> bool:
    return bool(first_of((*INPUT, *OUTPUT), line)[0])


def _response(line: Fields) -> Fields:
    """Return the response, or an empty object where a spend log does not store it."""
    return {} if _counts(line) and not isinstance(line.get("response"), dict) else part(line, "response")


def _reply(line: Fields) -> Fields:
    response = _response(line)
    return part(response, "body") or response or line


def _usage(line: Fields) -> Fields:
    return part(_reply(line), "usage") or line


def _row(line: Fields) -> TraceRow:
    request, reply = part(line, "body") or line, _reply(line)
    arrival = _time(line, reply)
    prompt, answer = prompt_text(request), answer_text(reply)
    usage = _usage(line)
    input_tokens = _tokens(usage, INPUT, prompt, request, PROMPTS) + _cached_tokens(usage)
    output_tokens = _tokens(usage, OUTPUT, answer, reply, ANSWERS)
    metadata = request.get("metadata")
    app = str((metadata.get("app") if isinstance(metadata, dict) else "") or request.get("model") or "default")
    return TraceRow(
        arrival=arrival,
        client=next((str(request[name]) for name in CLIENTS if request.get(name)), "anonymous"),
        app=app,
        input_tokens=max(min(input_tokens, LONGEST), 1),
        output_tokens=max(output_tokens, 1),
        blocks=(PrefixBlocks(app, tuple(islice(text_blocks(prompt), input_tokens // TEXT_BLOCK_TOKENS))),),
        block_tokens=TEXT_BLOCK_TOKENS,
    )


def _cached_tokens(usage: Fields) -> int:
    return sum(whole(usage[name], name, 0, LONGEST) for name in CACHED if usage.get(name) is not None)


def _tokens(usage: Fields, counts: tuple[str, str], text: str, message: Fields, texts: tuple[str, ...]) -> int:
    """Return the counted tokens, or an estimate; raises ValueError when the message has none of `texts` either."""
    name, value = first_of(counts, usage)
    if name:
        return whole(value, name, 0, LONGEST)
    if not first_of(texts, message)[0]:
        raise ValueError(f"neither usage nor text: none of {', '.join((*counts, *texts))}")
    return text_tokens(text)


def _time(line: Fields, reply: Fields) -> float:
    name, stamp = first_of(TIMES, line, reply)
    if not name:
        raise ValueError(f"none of {', '.join(TIMES)}")
    if isinstance(stamp, str):
        try:
            return seconds_since_1970(stamp)
        except ValueError:
            raise ValueError(f"{name}: {shown(stamp)} is no ISO 8601 time") from None
    seconds = number(stamp, name)
    while seconds > LATEST_SECONDS:
        seconds /= 1000
    return seconds

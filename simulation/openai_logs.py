"""Reader for logs of OpenAI-style requests: JSON lines, plain or gzip, as written by gateways or returned by the batch
API.

Each line has the request (at the top or under `body`) and the response (at the top, under `response` or under
`response.body`) of any of the three APIs (`simulation.openai_texts`). The fields that are read are `user`, the text,
`usage`, and the time: `timestamp`, `created` or `created_at`. A time is either seconds since 1970 (milli-, micro- and
nanoseconds are recognised, because as seconds they would be too large) or ISO 8601, in UTC if it names no zone. Without
`usage`, lengths are estimated from the text; without text, calls share no prefix. Failed requests are left out: their
line has an `error`, a null `response` or a status of 400 or above.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import xxhash

from fairlead.errors import InvalidRequest
from simulation.json_fields import Fields, as_object, first_of, number, part, whole
from simulation.openai_texts import answer_text, prompt_text
from simulation.prompts import BLOCK_TOKENS
from simulation.tables import UNREADABLE, open_bytes
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceContents, TraceRow

CHARACTERS = 4  # per token, approximately
TIMES = ("timestamp", "created", "created_at")
LATEST_SECONDS = 1e11  # in the year 5138
INPUT, OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


def read_openai_log(path: Path) -> TraceContents:
    """Return the requests in order of time, from 0; raises InvalidRequest with the line that cannot be read."""
    rows, failed = [], 0
    for at, line in _lines(path):
        try:
            fields = as_object(json.loads(line), "the line")
            if _failed(fields):
                failed += 1
            else:
                rows.append(_row(fields))
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise InvalidRequest(f"{path}, line {at}: {error}") from None
    start = min((row.arrival for row in rows), default=0.0)
    rows = [row.at(row.arrival - start) for row in rows]
    left_out = (f"{path}: {failed} requests that failed are left out",) if failed else ()
    return TraceContents(sorted(rows, key=lambda row: row.arrival), left_out)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    try:
        with open_bytes(path) as file:
            for at, line in enumerate(file, start=1):
                if line.strip():
                    yield at, line
    except UNREADABLE as error:
        raise InvalidRequest(f"{path} cannot be read after line {at}: {error}") from None


def _failed(line: Fields) -> bool:
    if "response" in line and line["response"] is None:
        return True
    response = part(line, "response")
    _, status = first_of(("status_code", "status"), response, line)
    return (isinstance(status, int) and status >= 400) or any(
        fields.get("error") for fields in (line, response, _reply(line))
    )


def _reply(line: Fields) -> Fields:
    response = part(line, "response")
    return part(response, "body") or response or line


def _row(line: Fields) -> TraceRow:
    request, reply = part(line, "body") or line, _reply(line)
    usage = part(reply, "usage")
    prompt = prompt_text(request)
    input_tokens = _tokens(usage, INPUT, prompt)
    app = str(part(request, "metadata").get("app") or request.get("model") or "default")
    return TraceRow(
        arrival=_time(line, reply),
        client=str(request.get("user") or "anonymous"),
        app=app,
        input_tokens=max(input_tokens, 1),
        output_tokens=max(_tokens(usage, OUTPUT, answer_text(reply)), 1),
        blocks=(PrefixBlocks(app, tuple(_blocks(prompt, input_tokens // BLOCK_TOKENS))),),
        block_tokens=BLOCK_TOKENS,
    )


def _tokens(usage: Fields, names: tuple[str, str], text: str) -> int:
    name, value = first_of(names, usage)
    return whole(value, name, 0, LONGEST) if name else min(len(text) // CHARACTERS, LONGEST)


def _time(line: Fields, reply: Fields) -> float:
    name, stamp = first_of(TIMES, line, reply)
    if not name:
        raise ValueError(f"none of {', '.join(TIMES)}")
    if isinstance(stamp, str):
        time = datetime.fromisoformat(stamp)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    seconds = number(stamp, name)
    while seconds > LATEST_SECONDS:
        seconds /= 1000
    return seconds


def _blocks(text: str, most: int) -> Iterator[int]:
    """Yield chained block ids: equal ids mean equal text up to the end of that block."""
    size, digest = CHARACTERS * BLOCK_TOKENS, 0
    for index in range(min(most, len(text) // size)):
        block = text[index * size : (index + 1) * size].encode("utf-8", "surrogatepass")
        digest = xxhash.xxh3_64_intdigest(block, seed=digest)
        yield digest

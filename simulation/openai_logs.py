"""Logs of OpenAI-style requests: JSON lines, as gateways write them or as the batch API returns them.

Each line has the request (at the top or under `body`) and the response (under `response` or `response.body`). Read
are `user`, `messages` or `prompt`, `usage`, and the time: `created`, or `timestamp` (seconds since 1970 or ISO 8601).
Without `usage`, lengths are estimated from the text; without text nothing is shared.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import xxhash

from fairlead.errors import InvalidRequest
from simulation.prompts import BLOCK_TOKENS
from simulation.replay import LONGEST_OUTPUT, Row

CHARACTERS = 4  # per token, about
Fields = Mapping[str, Any]


def read_openai_log(path: Path) -> list[Row]:
    """In order of time; raises InvalidRequest, naming the line, where a line cannot be read."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip():
            try:
                rows.append(_row(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidRequest(f"{path}, line {number}: {error!r}") from error
    start = min((row.arrival for row in rows), default=0.0)
    rows = [row.at(row.arrival - start) for row in rows]
    return sorted(rows, key=lambda row: row.arrival)


def _row(line: Fields) -> Row:
    request: Fields = line.get("body", line)
    response: Fields = line.get("response", line)
    response = response.get("body", response)
    usage: Fields = response.get("usage") or {}
    prompt = "".join(_text(request))
    answer = "".join(choice.get("message", {}).get("content") or "" for choice in response.get("choices", ()))
    input_tokens = int(usage.get("prompt_tokens") or len(prompt) // CHARACTERS)
    return Row(
        arrival=_time(line, response),
        client=str(request.get("user") or "anonymous"),
        app=str((request.get("metadata") or {}).get("app") or request.get("model") or "default"),
        input_tokens=max(input_tokens, 1),
        output_tokens=min(max(int(usage.get("completion_tokens") or len(answer) // CHARACTERS), 1), LONGEST_OUTPUT),
        blocks=tuple(_blocks(prompt, input_tokens // BLOCK_TOKENS)),
        block_tokens=BLOCK_TOKENS,
    )


def _text(request: Fields) -> Iterable[str]:
    if isinstance(request.get("prompt"), str):
        yield request["prompt"]
    for message in request.get("messages", ()):
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
        yield f"<{message['role']}>{''.join(parts)}"


def _time(line: Fields, response: Fields) -> float:
    stamp = line.get("timestamp", line.get("created", response.get("created")))
    if isinstance(stamp, str):
        return datetime.fromisoformat(stamp).timestamp()
    if stamp is None:
        raise ValueError("neither timestamp nor created")
    return float(stamp)


def _blocks(text: str, most: int) -> Iterable[int]:
    """Chained: equal ids stand for equal text up to there."""
    size, digest = CHARACTERS * BLOCK_TOKENS, 0
    for index in range(min(most, len(text) // size)):
        digest = xxhash.xxh3_64_intdigest(text[index * size : (index + 1) * size].encode(), seed=digest)
        yield digest

"""Logs of the three OpenAI-style APIs give times, users, lengths and what is shared."""

import gzip
import json
import re
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.json_lines import read_json_lines
from simulation.trace_rows import TraceRow
from simulation.traces import read

ANSWER = {"usage": {"completion_tokens": 1}}


def log(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def one(tmp_path: Path, line: dict[str, object]) -> TraceRow:
    [row] = read_json_lines(log(tmp_path / "log.jsonl", {"timestamp": 5, **line})).rows
    return row


def test_a_log_gives_times_users_lengths_and_what_is_shared(tmp_path: Path) -> None:
    system = {"role": "system", "content": "x" * 400}
    rows, left_out = read_json_lines(
        log(
            tmp_path / "log.jsonl",
            {
                "timestamp": "2026-01-01T00:00:05",
                "user": "ann",
                "messages": [system, {"role": "user", "content": "one"}],
                "response": {"usage": {"prompt_tokens": 90, "completion_tokens": 7}},
            },
            {
                "body": {"user": "bob", "messages": [system, {"role": "user", "content": "two"}]},
                "response": {"body": {"created": 1767225601, "choices": [{"message": {"content": "12345678"}}]}},
            },
        )
    )
    assert left_out == ()
    assert [(row.client, row.arrival) for row in rows] == [("bob", 0.0), ("ann", 4.0)], "without a zone: UTC"
    assert [row.output_tokens for row in rows] == [2, 7]
    assert rows[1].input_tokens == 90
    assert rows[0].blocks[0].ids[:5] == rows[1].blocks[0].ids[:5] != ()


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": "word" * 90, "choices": [{"text": "answer!!" * 10}]},
        {"prompt": ["word" * 40, "word" * 50], "choices": [{"text": "answer!!" * 5}, {"text": "answer!!" * 5}]},
        {"prompt": list(range(90)), "usage": {"completion_tokens": 20}},
        {"prompt": [[1] * 40, [2] * 50], "usage": {"completion_tokens": 20}},
        {"input": "word" * 90, "usage": {"output_tokens": 20}},
        {"input": "x", "instructions": "y", "usage": {"input_tokens": 90, "output_tokens": 20}},
        {
            "body": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "word" * 90}]}]},
            "response": {
                "status_code": 200,
                "body": {"error": None, "output": [{"content": [{"text": "answer!!" * 10}]}, {"type": "reasoning"}]},
            },
            "error": None,
        },
        {"body": {"prompt": "word" * 90}, "usage": {"prompt_tokens": None, "completion_tokens": 20}},
    ],
)
def test_completions_and_responses_have_their_lengths(tmp_path: Path, line: dict[str, object]) -> None:
    row = one(tmp_path, line)
    assert row.input_tokens == pytest.approx(90, abs=3)
    assert row.output_tokens == 20


def test_equal_token_ids_are_shared(tmp_path: Path) -> None:
    rows = [one(tmp_path, {"prompt": [*range(32), *tail], **ANSWER}) for tail in ([1] * 16, [2] * 16)]
    first, second = (row.blocks[0].ids for row in rows)
    assert first[:2] == second[:2]
    assert first[2] != second[2]


@pytest.mark.parametrize(
    "failed",
    [
        {"response": None, "error": {"code": "batch_expired"}},
        {"response": {"status_code": 429, "body": {"error": {"message": "slow down"}}}},
        {"timestamp": 3, "messages": [], "response": {"error": "down"}},
        {"timestamp": 3, "prompt": "x", "status": 500},
    ],
)
def test_requests_that_failed_are_counted_and_left_out(tmp_path: Path, failed: object) -> None:
    path = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "x", "status": 200, **ANSWER}, failed, failed)
    rows, left_out = read_json_lines(path)
    assert len(rows) == 1
    assert left_out == (f"{path}: 2 requests that failed are left out",)


@pytest.mark.parametrize("scale", [1, 1000, 1_000_000, 1_000_000_000])
def test_times_may_be_in_parts_of_a_second(tmp_path: Path, scale: int) -> None:
    lines = [{"timestamp": (1767225600 + 40 * n) * scale, "prompt": "x", **ANSWER} for n in range(2)]
    assert [row.arrival for row in read_json_lines(log(tmp_path / "log.jsonl", *lines)).rows] == [0.0, 40.0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"user": "a"}, "none of timestamp, created, created_at, startTime"),
        ({"timestamp": 1, "messages": ["text"]}, "messages: 'text' is no object"),
        (5, "the line: 5 is no object"),
        ({"timestamp": "noon"}, "'noon'"),
        ({"timestamp": float("nan")}, "timestamp: nan is below 0 or not finite"),
        ({"created": float("inf")}, "created: inf is below 0 or not finite"),
        ({"timestamp": [1]}, "timestamp: [1] is not a number"),
        ({"timestamp": 1, "usage": {"prompt_tokens": "9"}}, "prompt_tokens: '9' is not a whole number"),
        (
            {"timestamp": 1, "prompt": "", "usage": {"output_tokens": 1 << 30}},
            "output_tokens: 1073741824 is not from 0 to 16777216",
        ),
        ({"timestamp": 1, "prompt": {"a": 1}}, "prompt: {'a': 1} is neither text nor a list"),
        ({"timestamp": 1, "prompt": [-1]}, "prompt: -1 is neither text nor a list"),
        ({"timestamp": 1, "choices": [{"message": "hi"}]}, "message: 'hi' is no object"),
        (
            {"timestamp": 1, "user": "a"},
            "neither usage nor text: none of prompt_tokens, input_tokens, prompt, messages",
        ),
        ({"timestamp": 1, "prompt": "x"}, "neither usage nor text: none of completion_tokens, output_tokens, choices"),
        ({"timestamp": 1, "prompt": "x", "usage": {"prompt_tokens": 1}}, "neither usage nor text: none of completion"),
        ({"timestamp": 1, **ANSWER}, "neither usage nor text: none of prompt_tokens"),
        (
            {"timestamp": 1, "prompt_tokens": 5, "completion_tokens": 1.5},
            "completion_tokens: 1.5 is not a whole number",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_field_and_value(tmp_path: Path, line: object, said: str) -> None:
    path = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "x", **ANSWER}, line)
    with pytest.raises(InvalidRequest, match=re.escape(said)) as found:
        read_json_lines(path)
    assert str(found.value).startswith(f"{path}, line 2: ")


def test_lines_end_where_files_say_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(
        gzip.compress(
            '{"timestamp": 1, "prompt": "\u2028\x85", "completion_tokens": 1}\r\n\n'
            '{"timestamp": 2, "prompt_tokens": 1, "completion_tokens": 1}\n'.encode()
        )
    )
    assert [row.arrival for row in read(path).rows] == [0.0, 1.0]


def test_a_file_that_is_no_utf8_or_gzip_is_named(tmp_path: Path) -> None:
    latin, cut = tmp_path / "latin.jsonl", tmp_path / "cut.jsonl.gz"
    latin.write_bytes(
        '{"timestamp": 1, "input_tokens": 1, "output_tokens": 1}\n{"timestamp": 1, "user": "J\u00fcrgen"}\n'.encode(
            "latin-1"
        )
    )
    cut.write_bytes(gzip.compress(b'{"timestamp": 1, "prompt_tokens": 1, "completion_tokens": 1}\n' * 1000)[:-20])
    with pytest.raises(InvalidRequest, match=r"latin\.jsonl, line 2: 'utf-8' codec can't decode"):
        read(latin)
    with pytest.raises(InvalidRequest, match=r"cut\.jsonl\.gz cannot be read after line \d+: "):
        read(cut)


def test_a_spend_log_has_its_counts_at_the_top(tmp_path: Path) -> None:
    call = {"call_type": "acompletion", "model": "llama", "api_key": "5f3", "user": "", "metadata": {}, "messages": {}}
    lines = [
        {
            **call,
            "startTime": "2026-01-01T00:00:07.5Z",
            "prompt_tokens": 900,
            "completion_tokens": 70,
            "end_user": "ann",
        },
        {**call, "startTime": "2026-01-01T00:00:05+00:00", "prompt_tokens": 30, "completion_tokens": 4, "response": {}},
        {**call, "startTime": "2026-01-01T00:00:06Z", "prompt_tokens": 0, "completion_tokens": 0, "status": "failure"},
        {**call, "startTime": "2026-01-01T00:00:06Z", "prompt_tokens": 5, "completion_tokens": 5, "cache_hit": "True"},
        {**call, "startTime": "2026-01-01T00:00:06Z", "prompt_tokens": 5, "call_type": "aembedding"},
        {**call, "startTime": "2026-01-01T00:00:06Z", "prompt_tokens": 0, "completion_tokens": 0},
    ]
    path = log(tmp_path / "spend.jsonl", *lines)
    rows, left_out = read(path)
    assert [(row.arrival, row.client, row.app, row.input_tokens, row.output_tokens) for row in rows] == [
        (0.0, "5f3", "llama", 30, 4),
        (2.5, "ann", "llama", 900, 70),
    ]
    assert left_out == (
        f"{path}: 1 requests that failed are left out",
        f"{path}: 1 requests that LiteLLM answered from its cache are left out",
        f"{path}: 1 calls that generate no text are left out",
        f"{path}: 1 requests whose log counts no tokens at all are left out",
    )


@pytest.mark.parametrize("stamp", ["1700000000", "Jan 1 2026", ""])
def test_a_time_that_cannot_be_read_is_named_with_its_field(tmp_path: Path, stamp: str) -> None:
    path = log(tmp_path / "times.jsonl", {"created_at": stamp, "prompt_tokens": 1, "completion_tokens": 1})
    with pytest.raises(InvalidRequest, match=f"line 1: created_at: '{stamp}' is no ISO 8601 time"):
        read(path)


def test_anthropics_count_of_the_prompt_leaves_out_what_was_cached(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 40, "output_tokens": 3}
    assert one(tmp_path, {"system": "s" * 400, "response": {"content": [], "usage": usage}}).input_tokens == 550
    answer = {"content": [{"type": "text", "text": "word"}, {"type": "tool_use", "input": {"path": "a" * 34}}]}
    row = one(tmp_path, {"system": [{"type": "text", "text": "s" * 392}], "messages": [], "response": answer})
    assert (row.input_tokens, row.output_tokens) == (100, 12)


def test_arguments_of_tool_calls_are_part_of_the_answer(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": "x" * 80}}
    row = one(tmp_path, {"prompt": "x", "choices": [{"message": {"content": None, "tool_calls": [call]}}]})
    assert row.output_tokens == 20
    assert (
        one(tmp_path, {"input": "x", "output": [{"type": "function_call", "arguments": "x" * 80}]}).output_tokens == 20
    )

"""Published traces are read in their own formats and units; a file that fits none, or several, is refused by line."""

import json
import re
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import TraceRow
from simulation.traces import TraceWorkload, read

MOONCAKE = {"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [4, 5, 6]}
BAILIAN = {"chat_id": 8, "parent_chat_id": -1, "timestamp": 61.5, "type": "text", "turn": 1}
SIZES = {"input_length": 40, "output_length": 9, "hash_ids": [1, 2, 3]}
TURNS = [{"text": "a" * 640, "output_length": 30}, {"text": "b" * 80, "delay": 2500, "output_length": 5}]
SINGLE = {"text": "c" * 400, "timestamp": 1500, "output_length": 3}
LOGGED = {"timestamp": 5, "prompt_tokens": 10, "completion_tokens": 2}


def lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def seen(rows: list[TraceRow]) -> list[tuple[float, int, int]]:
    return [(row.arrival, row.input_tokens, row.output_tokens) for row in rows]


def test_mooncakes_trace_is_in_milliseconds_and_blocks_of_512(tmp_path: Path) -> None:
    later = {**MOONCAKE, "timestamp": 3500, "input_length": 1030.0, "hash_ids": [4, 5, 9]}  # as pandas writes numbers
    path = lines(tmp_path / "trace.jsonl", MOONCAKE, later)
    rows = TraceWorkload(path).rows()
    assert seen(rows) == [(0.0, 1030, 7), (0.5, 1030, 7)]
    one, other = (call.prompt for call in TraceReplay(rows).first())
    assert one[:1024] == other[:1024]
    assert one[1024] != other[1024], "the last block is incomplete"
    assert read(path, block_tokens=None).rows[0].block_tokens == 512


def test_a_session_of_mooncakes_trace_repeats_its_past_and_waits_for_it(tmp_path: Path) -> None:
    later = {"session_id": "s", "delay": 1500, "input_length": 100, "output_length": 5}
    path = lines(tmp_path / "trace.jsonl", {**MOONCAKE, "session_id": "s"}, later, later)
    rows = read(path).rows
    assert [row.input_tokens for row in rows] == [1030, 1137, 1242]
    assert [(row.after, row.think) for row in rows] == [((), None), ((0,), 1.5), ((1,), 1.5)]
    first, second, third = (TraceReplay(rows)._prompt(row) for row in rows)
    assert first[:1024] == second[:1024] == third[:1024]


def test_messages_in_mooncakes_trace_are_whole_prompts(tmp_path: Path) -> None:
    hello = {"role": "user", "content": "h" * 400}
    path = lines(
        tmp_path / "trace.jsonl",
        {"session_id": "s", "messages": [hello], "output_length": 50, "timestamp": 0},
        {"session_id": "s", "messages": [hello, hello], "output_length": 30, "timestamp": 2000},
        {"text_input": "t" * 80, "output_length": 3, "timestamp": 2500},
    )
    rows = read(path).rows
    assert [row.input_tokens for row in rows] == [101, 203, 20]
    assert [row.after for row in rows] == [(), (0,), ()]
    assert rows[1].blocks[0].ids[:6] == rows[0].blocks[0].ids[:6] != ()


def test_bailians_trace_is_in_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "trace.jsonl",
        {**BAILIAN, **SIZES},
        {**BAILIAN, **SIZES, "chat_id": 9, "timestamp": 62.5},
        {**BAILIAN, **SIZES, "chat_id": 10, "parent_chat_id": 8, "timestamp": 63.5},
        {**BAILIAN, **SIZES, "chat_id": 11, "parent_chat_id": 3},
    )
    rows = read(path).rows
    assert [row.arrival for row in rows] == [61.5, 62.5, 63.5, 61.5]
    assert [(row.interaction, row.after) for row in rows] == [("8", ()), ("9", ()), ("8", (0,)), ("3", ())]
    assert {row.block_tokens for row in rows} == {16}


def test_aiperfs_conversations_repeat_their_past_and_wait_for_their_answers(tmp_path: Path) -> None:
    path = lines(tmp_path / "input.jsonl", {"session_id": "s", "turns": TURNS}, {"turns": TURNS})
    with pytest.raises(InvalidRequest, match="give --starts-per-minute"):
        TraceWorkload(path).rows()
    rows = TraceWorkload(path, starts_per_minute=60.0).rows()
    assert [(row.input_tokens, row.output_tokens) for row in rows] == [(160, 30), (210, 5)] * 2
    assert [(row.after, row.think) for row in rows] == [((), None), ((0,), 2.5), ((), None), ((2,), 2.5)]
    first, second, other, _ = (TraceReplay(rows)._prompt(row) for row in rows)
    assert first[:160] == second[:160]
    assert first[:160] == other[:160], "equal texts of two conversations"
    timed = lines(tmp_path / "timed.jsonl", {"turns": [{**TURNS[0], "timestamp": 500}, {**TURNS[1]}]})
    assert [row.arrival for row in read(timed).rows] == [0.5, 3.0]


def test_aiperfs_single_turns_are_whole_prompts_in_milliseconds(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "input.jsonl", SINGLE, {**SINGLE, "timestamp": 2000, "text": None, "texts": ["c" * 400, "d"]}
    )
    rows = TraceWorkload(path).rows()
    assert seen(rows) == [(0.0, 100, 3), (0.5, 100, 3)]
    assert rows[0].blocks == rows[1].blocks


@pytest.mark.parametrize("times", ["2023-11-16 18:15:4{}.6805900", "2024-05-10 00:00:0{}.009930+00:00"])
def test_azures_traces_have_times_of_day(tmp_path: Path, times: str) -> None:
    path = table(
        tmp_path / "AzureLLMInferenceTrace_conv.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        f"{times.format(6)},374,44",
        f"{times.format(9)},0,0",
    )
    rows = TraceWorkload(path).rows()
    assert [row.arrival for row in rows] == pytest.approx([0.0, 3.0])
    assert [(row.input_tokens, row.output_tokens) for row in rows] == [(374, 44), (1, 1)]


def test_burstgpts_failures_are_left_out_and_its_sessions_wait(tmp_path: Path) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    path = table(
        tmp_path / "BurstGPT_3.csv",
        header,
        "19440110.0,aa,43,GPT-4,906,446,1352,Conversation log",
        "19440115.0,,2,ChatGPT,36,0,36,API log",
        "19440161.0,,2,ChatGPT,36,29,65,API log",
        "19440192.5,aa,8,GPT-4,1779,123,1902,Conversation log",
    )
    rows, left_out = TraceWorkload(path).read()
    assert seen(rows) == [(0.0, 906, 446), (51.0, 36, 29), (82.5, 1779, 123)]
    assert [(row.app, row.interaction, row.after) for row in rows] == [
        ("GPT-4", "aa", ()),
        ("ChatGPT", "", ()),
        ("GPT-4", "aa", (0,)),
    ]
    assert left_out == (f"{path}: 1 requests that failed are left out",)
    without = table(
        tmp_path / "BurstGPT_1.csv", header.replace("Session ID,Elapsed time,", ""), "5,ChatGPT,472,18,490,x"
    )
    assert seen(read(without).rows) == [(5.0, 472, 18)]


def test_a_spend_log_may_be_a_table(tmp_path: Path) -> None:
    path = table(
        tmp_path / "spend.csv",
        "request_id,call_type,api_key,prompt_tokens,completion_tokens,startTime,model,user,end_user,status",
        "1,acompletion,5f3,90,7,2026-01-01 00:00:07.5+00,llama,,ann,success",
        "2,acompletion,5f3,30,4,2026-01-01 00:00:05+00,llama,bob,,success",
        "3,acompletion,5f3,0,0,2026-01-01 00:00:06+00,llama,bob,,failure",
    )
    rows, left_out = read(path)
    assert [(row.arrival, row.client, row.input_tokens, row.output_tokens) for row in rows] == [
        (0.0, "bob", 30, 4),
        (2.5, "ann", 90, 7),
    ]
    assert left_out == (f"{path}: 1 requests that failed are left out",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([MOONCAKE, {"timestamp": 5}], "line 2: input_length is missing"),
        ([{"timestamp": 1, "output_length": 3}], "line 1: input_length is missing"),
        ([{"timestamp": 1, "input_length": 3}], "line 1: output_length is missing"),
        ([{**MOONCAKE, "input_length": "9"}], "line 1: input_length: '9' is not a whole number"),
        ([{**MOONCAKE, "output_length": 1 << 30}], "line 1: output_length: 1073741824 is not from 0 to"),
        ([{**MOONCAKE, "timestamp": -5}], "line 1: timestamp: -5 is below 0"),
        ([{**MOONCAKE, "timestamp": "noon"}], "line 1: timestamp: 'noon' is not a number"),
        ([{**MOONCAKE, "input_length": 40}], "line 1: hash_ids: 3 blocks of 512 tokens are no prompt of 40 tokens"),
        ([{**BAILIAN, **SIZES, "input_length": 1030}], "hash_ids: 3 blocks of 16 tokens are no prompt of 1030 tokens"),
        ([{**MOONCAKE, "hash_ids": [1, 2, -3]}], "line 1: hash_ids: -3 is not from 0 to"),
        ([{**MOONCAKE, "delay": 5}], "line 1: timestamp and delay exclude each other"),
        ([{**MOONCAKE, "text_input": "x"}], "line 1: input_length and text_input exclude each other"),
        ([MOONCAKE, {**MOONCAKE, "timestamp": None}], "line 2: timestamp: this line has none, contrary to the lines"),
        ([{**BAILIAN, **SIZES, "timestamp": None}], "line 1: timestamp is missing"),
        ([{"turns": [{"text": "x"}]}], "line 1: turns[0]: output_length is missing"),
        ([{"turns": [TURNS[0], {"delay": 5, "output_length": 1}]}], "line 1: turns[1]: texts is missing"),
        ([{"turns": [{**TURNS[0], "image": "a.png"}]}], "turns[0]: image: the number of its tokens is unknown"),
        ([{"turns": "x"}], "line 1: turns: 'x' is no list"),
        ([{"text": 5, "output_length": 1}], "line 1: texts: 5 is no text"),
        ([MOONCAKE, LOGGED], "line 2: this line is one of a request log, but the lines before are of Mooncake's trace"),
        ([LOGGED, SINGLE], "line 2: this line is one of AIPerf's single turns, but the lines before are of a request"),
        ([MOONCAKE, {**BAILIAN, **SIZES}], "line 2: this line is one of Bailian's trace, but the lines before"),
        (
            [{**MOONCAKE, "usage": {}}],
            "line 1: hash_ids is a field of Mooncake's trace, but usage is one of a request log",
        ),
        (
            [{"turns": TURNS, "chat_id": 1}],
            "line 1: chat_id is a field of Bailian's trace, but turns is one of AIPerf's",
        ),
        (
            [[MOONCAKE]],
            "line 1: the line: [{'timestamp': 3000, 'input_length': 1030, 'output_length': ... is no object",
        ),
    ],
)
def test_a_line_that_fits_no_format_or_several_is_refused(tmp_path: Path, content: list[object], said: str) -> None:
    path = lines(tmp_path / "trace.jsonl", *content)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read(path)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("TIMESTAMP,ContextTokens,GeneratedTokens", "5,1,1"), "line 2: TIMESTAMP: '5' is no ISO 8601 time"),
        (("TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10,x,1"), "line 2: ContextTokens: 'x' is not a number"),
        (
            ("TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10,4,000,1"),
            "line 2: the table has 3 columns, got 4 fields",
        ),
        (("TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10,4.5,1"), "ContextTokens: 4.5 is not a whole number"),
        (("Timestamp,Model,Request tokens,Response tokens", "5,m,1,"), "line 2: Response tokens: '' is not a number"),
        (("TIMESTAMP,ContextTokens", "x,1"), "has no column arrival_s, input_tokens, output_tokens, nor"),
        (
            ("TIMESTAMP,ContextTokens,GeneratedTokens,arrival_s,input_tokens,output_tokens", "2024-05-10,1,1,5,1,1"),
            "has the columns of several formats: Azure, a trace",
        ),
        (("startTime,prompt_tokens,completion_tokens", "noon,1,1"), "line 2: startTime: 'noon' is no ISO 8601 time"),
    ],
)
def test_a_table_that_fits_no_format_or_several_is_refused(tmp_path: Path, rows: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read(table(tmp_path / "trace.csv", *rows))

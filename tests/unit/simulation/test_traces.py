"""Traces become the requests that they describe; what cannot be read is named."""

import gzip
import re
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import PrefixBlocks, TraceRow
from simulation.traces import TraceWorkload, read, read_trace

HEADER = "arrival_s,client,app,interaction,stage,parent,input_tokens,output_tokens,blocks"


def trace(path: Path, *lines: str, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def ids(row: TraceRow) -> list[int]:
    return [block for blocks in row.blocks for block in blocks.ids]


def test_runs_of_blocks_have_their_length(tmp_path: Path) -> None:
    path = trace(tmp_path / "agent_small.csv", "0.0,,a,i,0,,320,5,7+2;9;20+3", "1.0,,a,i,1,0,320,5,")
    one, other = read_trace(path).rows
    assert ids(one) == [7, 8, 9, 20, 21, 22]
    assert one.block_tokens == 64
    assert ids(other) == []


def test_blocks_need_a_size_that_is_known_or_told(tmp_path: Path) -> None:
    path = trace(tmp_path / "mine.csv", "0.0,,a,,,,320,5,7+2")
    with pytest.raises(InvalidRequest, match=r"mine\.csv, line 2: blocks: the block size of this trace is unknown"):
        read(path)
    [row] = read(path, block_tokens=128).rows
    assert (ids(row), row.block_tokens) == ([7, 8], 128)
    assert TraceWorkload(path, block_tokens=128).rows() == [row]
    assert read(trace(tmp_path / "other.csv", "0.0,,a,,,,320,5,")).rows[0].blocks == ()


def test_rows_wait_for_their_parent_or_for_the_row_before(tmp_path: Path) -> None:
    lines = ["0,,a,i,0,,9,1,", "1,,a,j,0,,9,1,", "2,,a,i,1,,9,1,", "3,,a,i,2,0,9,1,", "4,,a,,,,9,1,", "5,,a,,,,9,1,"]
    rows = read_trace(trace(tmp_path / "mine.csv", *lines)).rows
    assert [row.after for row in rows] == [(), (), (0,), (0,), (), ()]


def test_the_main_loop_waits_for_the_agents_that_it_launched(tmp_path: Path) -> None:
    header = "arrival_s,app,interaction,agent,stage,parent,think_s,input_tokens,output_tokens"
    lines = [
        "0,claude-code,s,0,0,,0,9,1",
        "1,claude-code,s,1,0,0.0,0,9,1",
        "2,claude-code,s,1,1,1.0,3,9,1",
        "1,claude-code,s,2,0,0.0,0,9,1",
        "9,claude-code,s,0,1,0.0,8,9,1",
        "0,claude-code,t,0,0,,,9,1",
    ]
    rows = read_trace(trace(tmp_path / "claudecode_requests.csv", *lines, header=header)).rows
    assert [row.after for row in rows] == [(), (0,), (1,), (0,), (0, 2, 3), ()]
    assert [row.think for row in rows] == [0.0, 0.0, 3.0, 0.0, 8.0, None]


@pytest.mark.parametrize("parent", ["1", "-1", "0.9", "5.0", "x"])
def test_a_parent_is_an_earlier_row(tmp_path: Path, parent: str) -> None:
    path = trace(tmp_path / "mine.csv", "0,,a,i,0,,9,1,", f"0,,a,j,0,{parent},9,1,")
    with pytest.raises(InvalidRequest, match=re.escape(f"line 3: parent: '{parent}' is neither an earlier row")):
        read(path)


CLAUDE = [f"{n}.0,,claude-code,s{n},0,,640,5,1+8;{50 + n}+2" for n in range(3)]


def test_sessions_share_the_tools_and_system_prompt_that_are_of_one_length(tmp_path: Path) -> None:
    path = trace(tmp_path / "claudecode_requests.csv", *CLAUDE, "3.0,,claude-code,s0,1,0,640,5,3+4")
    rows, left_out = read(path)
    assert "no table of sessions" in left_out[0]
    assert rows[0].blocks == (PrefixBlocks("s0", range(1, 9)), PrefixBlocks("s0", range(50, 52)))
    sessions = ["s0,200,120", "s1,200,120", "s2,201,119"]
    trace(tmp_path / "claudecode_sessions.csv", *sessions, header="interaction,tool_tokens,system_tokens")
    rows, left_out = read(path)
    assert left_out == ()
    assert rows[0].blocks == (
        PrefixBlocks("tools 200, system 120", range(5)),
        PrefixBlocks("s0", range(6, 9)),
        PrefixBlocks("s0", range(50, 52)),
    )
    assert rows[3].blocks == (PrefixBlocks("tools 200, system 120", range(2, 5)), PrefixBlocks("s0", range(6, 7)))
    one, same, other = (call.prompt for call in TraceReplay(rows).first())
    assert one[: 5 * 64] == same[: 5 * 64]
    assert one[5 * 64] != same[5 * 64]
    assert one[0] != other[0], "320 tokens of other parts"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("client,window_start_s,rate_rps\n0,0,1.3\n", "has no column arrival_s, input_tokens, output_tokens"),
        (f"{HEADER}\n0.0,,a,,,,100,5,\nnoon,,a,,,,100,5,\n", "line 3: arrival_s: 'noon' is not a number"),
        (f"{HEADER}\n0.0,,a,,,,-4,5,\n", "line 2: input_tokens: -4 is below 0"),
        (f"{HEADER}\n0.0,,a,,,,100\n", "line 2: output_tokens: None is not a number"),
        (f"{HEADER}\n0.0,,a,,,,100,99999999,\n", "line 2: output_tokens: 99999999 is above 16777216"),
        (f"{HEADER}\n0.0,,a,,,,100.5,5,\n", "line 2: input_tokens: 100.5 is not a whole number"),
        (f"{HEADER}\n0.0,,a,,,,1_000,5,\n", "line 2: input_tokens: '1_000' is not a number"),
        (f"{HEADER}\n0.0,,a,,,,1,000,5,\n", "line 2: the table has 9 columns, got 10 fields"),
        (f"{HEADER},input_tokens\n0.0,,a,,,,1,5,,2\n", "has more than one column input_tokens"),
        (f"{HEADER}\nnan,,a,,,,100,5,\n", "line 2: arrival_s: nan is below 0 or not finite"),
        (f"{HEADER}\n\n\n0.0,,a,,,,100,5,x+3\n", "line 4: blocks: 'x+3' is neither"),
        (f"{HEADER}\n0.0,,a,,,,100,5,{'1;' * 70_000}\n", "after line 1: field larger than field limit (131072)"),
        (f"{HEADER}\n", "no requests"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_column_and_value(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "agent_small.csv"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=re.escape(said)) as found:
        read(path)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)


def test_a_trace_that_is_no_text_or_gzip_is_named(tmp_path: Path) -> None:
    latin, no_gzip, cut = (tmp_path / name for name in ("latin.csv", "plain.csv.gz", "cut.csv.gz"))
    latin.write_bytes(f"{HEADER}\n0.0,J\u00fcrgen,a,,,,100,5,\n".encode("latin-1"))
    no_gzip.write_text(HEADER)
    packed = gzip.compress("\n".join([HEADER, *(f"{n}.0,,a,,,,100,5," for n in range(5000))]).encode())
    cut.write_bytes(packed[: len(packed) // 2])
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(packed[:40] + b"\xff" * 40 + packed[80:])
    for path in (latin, no_gzip, cut, broken):
        with pytest.raises(InvalidRequest, match=rf"{path.name} is neither CSV nor gzip of CSV, after line \d+: "):
            read(path)


def test_a_trace_needs_only_times_and_lengths(tmp_path: Path) -> None:
    path = trace(tmp_path / "mine.csv", "0.5,100,7", header="arrival_s,input_tokens,output_tokens")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as spreadsheets write it
    [row] = read(path).rows
    assert (row.arrival, row.input_tokens, row.output_tokens, row.client) == (0.5, 100, 7, "")
    [call] = TraceWorkload(path).make().first()
    assert (call.client, call.app) == ("anonymous", "default")


def test_long_outputs_are_not_cut(tmp_path: Path) -> None:
    [row] = read(trace(tmp_path / "mine.csv", "0.5,,a,,,,100,32768,")).rows
    assert row.output_tokens == 32_768


def test_times_count_from_the_first_and_do_not_span_months(tmp_path: Path) -> None:
    path = trace(tmp_path / "mine.csv", "1767225600,,a,,,,9,1,", "1767225640,,a,,,,9,1,")
    assert [row.arrival for row in TraceWorkload(path, speed=4.0).rows()] == [0.0, 10.0]
    path = trace(tmp_path / "mine.csv", "0,,a,,,,9,1,", "1767225640,,a,,,,9,1,")
    with pytest.raises(InvalidRequest, match=r"mine\.csv: the requests span 20,454 days, but at most 31"):
        TraceWorkload(path).rows()
    assert len(TraceWorkload(path, limit=1).rows()) == 1


def test_interactions_without_times_of_their_own_start_at_the_given_rate(tmp_path: Path) -> None:
    lines = [f"{stage}.0,,claude-code,s{session},,,640,5,1+9" for session in range(300) for stage in range(2)]
    path = trace(tmp_path / "mine.csv", *lines)
    with pytest.raises(InvalidRequest, match="starts-per-minute"):
        TraceWorkload(path, block_tokens=64).make()
    rows = TraceWorkload(path, starts_per_minute=30.0, block_tokens=64).rows()
    starts = [row.arrival for row in rows[::2]]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(600, rel=0.2)
    assert all(later.arrival == pytest.approx(start + 1) for start, later in zip(starts, rows[1::2], strict=True))


def test_requests_that_all_begin_at_once_are_a_trace_with_times(tmp_path: Path) -> None:
    lines = [f"0.0,,a,s{session},,,640,5," for session in range(3)]
    assert len(TraceWorkload(trace(tmp_path / "mine.csv", *lines)).rows()) == 3
    assert len(TraceWorkload(trace(tmp_path / "mine.csv", *lines, "3.0,,a,s9,,,640,5,")).rows()) == 4

"""Traces and logs become the calls that they describe; configurations are compared on them."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.__main__ import main
from fairlead.errors import InvalidRequest
from simulation.call import Call
from simulation.openai_logs import read_openai_log
from simulation.replay import Replay, Row
from simulation.traces import Trace, read_rows, read_trace
from simulation.what_if import Summary, pareto, recommended

HEADER = "arrival_s,client,app,interaction,stage,parent,input_tokens,output_tokens,blocks"


def finish(call: Call, at: float) -> Call:
    call.ended_at = at
    return call


def test_blocks_are_shared_exactly_as_far_as_they_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mooncake_small.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(f"{HEADER}\n0.0,,m,0,0,,1100,5,7+1\n1.0,,m,1,0,,1100,5,7;9\n2.0,,m,2,0,,600,5,8\n")
    first, second, third = (call.prompt for call in Replay(read_trace(path)).first())
    assert first[:512] == second[:512]
    assert first[512:1024] != second[512:1024]
    assert third[:512] == first[512:1024], "block 8 is block 8 wherever it stands"
    assert [len(first), len(second), len(third)] == [1100, 1100, 600]
    assert first[1024:] != second[1024:], "what is beyond the blocks is nobody else's"


def test_calls_of_an_interaction_wait_for_the_answer_and_then_think() -> None:
    rows = [
        Row(arrival=0.0, client="a", app="x", input_tokens=10, output_tokens=2, interaction="i"),
        Row(arrival=1.0, client="b", app="x", input_tokens=10, output_tokens=2),
        Row(arrival=2.0, client="a", app="x", input_tokens=20, output_tokens=2, interaction="i", think=3.0),
    ]
    replay = Replay(rows)
    first, alone = replay.first()
    assert (first.interaction, first.stage, first.last) == ("i", 0, False)
    [following] = replay.ended(finish(first, 10.0))
    assert (following.arrival, following.stage, following.last) == (13.0, 1, True)
    assert not list(replay.ended(finish(alone, 11.0)))
    assert not list(replay.ended(finish(following, 20.0)))


def log(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_a_log_gives_times_users_lengths_and_what_is_shared(tmp_path: Path) -> None:
    system = {"role": "system", "content": "x" * 400}
    rows = read_openai_log(
        log(
            tmp_path / "log.jsonl",
            {
                "timestamp": "2026-01-01T00:00:05+00:00",
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
    assert [(row.client, row.arrival) for row in rows] == [("bob", 0.0), ("ann", 4.0)]
    assert [row.output_tokens for row in rows] == [2, 7]
    assert rows[1].input_tokens == 90
    assert rows[0].blocks[:5] == rows[1].blocks[:5] != ()


@pytest.mark.parametrize("line", [{"user": "a"}, {"timestamp": 1, "messages": ["text"]}, 5, {"timestamp": "noon"}])
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: object) -> None:
    path = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "x"}, line)
    with pytest.raises(InvalidRequest, match="line 2"):
        read_openai_log(path)


def summary(name: str, service: float, wait: float) -> Summary:
    return Summary(name, 1, 0, 0.0, service, 0.0, 0.0, 0.0, 0.0, wait, 1.0, 0.0, None, 1.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    summaries = [summary(str(n), float(service), float(wait)) for n, (service, wait) in enumerate(points)]
    front = {(s.service, s.worst_client) for s in pareto(summaries)}
    beaten = {p for p in points for q in points if p != q and q[0] >= p[0] and q[1] <= p[1]}
    assert front == set(points) - beaten
    best = recommended(pareto(summaries))
    assert best.service >= 0.95 * max(service for service, _ in points)


def test_the_commands_compare_and_recommend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"timestamp": n / 10, "user": f"u{n % 3}", "prompt": "word " * 60} for n in range(30)]
    lines.append({"timestamp": 3, "user": "u0", "prompt": "word " * 4000})
    trace, out = log(tmp_path / "log.jsonl", *lines), tmp_path / "out"
    options = ["--trace", str(trace), "--kv-tokens", "2048", "--out", str(out), "--processes", "1"]
    assert main(["simulate", *options, "--policy", "dlpm,fcfs", "--route", "doubleq"]) == 0
    assert "fcfs + doubleq: 1 rejected too long" in capsys.readouterr().out
    assert (out / "summary.csv").read_text().count("\n") == 3
    assert main(["tune", *options, "--quantum-tokens", "64,512", "--route-quantum-tokens", "1024"]) == 0
    assert "recommended: Q^u=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("client,window_start_s,rate_rps\n0,0,1.3\n", "no column arrival_s, input_tokens, output_tokens"),
        (f"{HEADER}\n0.0,,a,,,,100,5,\nnoon,,a,,,,100,5,\n", "line 3: arrival_s: 'noon' is not a number"),
        (f"{HEADER}\n0.0,,a,,,,-4,5,\n", "line 2: input_tokens: -4 is below 0"),
        (f"{HEADER}\n0.0,,a,,,,100\n", "line 2: output_tokens: None is not a number"),
        (f"{HEADER}\n0.0,,a,,,,100,5,x+3\n", "line 2: blocks: 'x+3' is neither"),
        (f"{HEADER}\n", "no requests"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_field_and_value(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "agent_small.csv"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read_rows(path)


def test_what_is_no_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_text(HEADER)
    with pytest.raises(InvalidRequest, match=r"trace\.csv\.gz is neither"):
        read_rows(path)


def test_a_trace_needs_only_times_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0.5,100,7\n")
    [row] = read_rows(path)
    assert (row.arrival, row.input_tokens, row.output_tokens, row.client) == (0.5, 100, 7, "")


RATES = "client,window_start_s,rate_rps,cv,dist,shape,scale"
LENGTHS = "client,window_start_s,field,mean,p0,p1,p5,p10,p25,p50,p75,p90,p95,p99,p100"


def test_servegens_parameters_become_requests_at_their_rates_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "servegen_small_rates.csv"
    path.write_text(f"{RATES}\n7,600,2.0,1,Gamma,1.0,0\n7,0,1.0,1,Weibull,1.0,0\n8,0,5.0,1,Gamma,1.0,0\n")
    with pytest.raises(InvalidRequest, match="servegen_small_lengths"):
        read_rows(path)
    inputs, outputs = ",".join(str(100 + n) for n in range(11)), ",".join(["30"] * 11)
    text = f"{LENGTHS}\n7,0,input_tokens,105,{inputs}\n7,0,output_tokens,30,{outputs}\n"
    (tmp_path / "servegen_small_lengths.csv").write_text(text)
    rows = read_rows(path)
    assert {row.client for row in rows} == {"client-7"}, "nothing is known of 8's lengths"
    assert sum(row.arrival < 600 for row in rows) == pytest.approx(600, rel=0.2)
    assert sum(row.arrival >= 600 for row in rows) == pytest.approx(1200, rel=0.2)
    assert {row.output_tokens for row in rows} == {30}
    assert sorted(row.input_tokens for row in rows)[len(rows) // 2] == 105
    assert read_rows(path, 50) == rows[:50]


def test_interactions_without_times_of_their_own_start_at_the_given_rate(tmp_path: Path) -> None:
    path = tmp_path / "claudecode_small.csv"
    lines = [f"{stage}.0,,claude-code,s{session},,,640,5,1+9" for session in range(300) for stage in range(2)]
    path.write_text("\n".join([HEADER, *lines]))
    with pytest.raises(InvalidRequest, match="starts-per-minute"):
        Trace(path).make()
    rows = Trace(path, starts_per_minute=30.0).rows()
    starts = [row.arrival for row in rows[::2]]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(600, rel=0.2)
    assert all(later.arrival == pytest.approx(start + 1) for start, later in zip(starts, rows[1::2], strict=True))


@pytest.mark.parametrize(
    ("option", "value"),
    [("--workers", "0"), ("--limit", "-3"), ("--speed", "0"), ("--speed", "inf"), ("--kv-tokens", "many")],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--trace", "mine.csv", option, value])
    said = capsys.readouterr().err
    assert option in said
    assert repr(value) in said


def test_every_number_of_a_sweep_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--trace", "mine.csv", "--quantum-tokens", "64,x"])
    assert "'x' is not a whole number" in capsys.readouterr().err


def test_a_policy_that_does_not_exist_is_named_beside_those_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "x"})
    assert main(["simulate", "--trace", str(trace), "--policy", "fair"]) == 1
    said = capsys.readouterr().err
    assert "no such policy: fair" in said
    assert "dlpm" in said


def test_what_is_no_profile_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "x"})
    profile = log(tmp_path / "profile.json", {"kv_tokens": 5})
    assert main(["simulate", "--trace", str(trace), "--profile", str(profile)]) == 1
    assert "profile.json" in capsys.readouterr().err


def test_a_run_that_answers_nothing_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = log(tmp_path / "log.jsonl", {"timestamp": 1, "prompt": "word " * 400})
    options = ["--trace", str(trace), "--kv-tokens", "64", "--out", str(tmp_path), "--processes", "1"]
    assert main(["simulate", *options]) == 1
    assert "nothing was answered: 1 rejected too long" in capsys.readouterr().err


def test_a_trace_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err

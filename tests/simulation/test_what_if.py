"""Traces and logs become the calls that they describe; configurations are compared on them."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.__main__ import main
from fairlead.errors import InvalidRequest
from simulation.call import Call
from simulation.openai_logs import read_openai_log
from simulation.replay import Replay, Row
from simulation.traces import read_trace
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
    trace, out = log(tmp_path / "log.jsonl", *lines), tmp_path / "out"
    options = ["--trace", str(trace), "--kv-tokens", "2048", "--out", str(out), "--processes", "1"]
    assert main(["simulate", *options, "--policy", "dlpm,fcfs", "--route", "doubleq"]) == 0
    assert "fcfs + doubleq" in capsys.readouterr().out
    assert (out / "summary.csv").read_text().count("\n") == 3
    assert main(["tune", *options, "--quantum-tokens", "64,512", "--route-quantum-tokens", "1024"]) == 0
    assert "recommended: Q^u=" in capsys.readouterr().out


def test_a_trace_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err

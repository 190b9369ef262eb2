"""Configurations are compared on traces and logs."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.__main__ import main
from simulation.what_if import Summary, pareto, recommended


def log(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


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

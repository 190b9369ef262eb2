"""`fairlead tune` recommends nothing under which somebody gets nothing, and hides no refusal."""

import csv
from pathlib import Path

import pytest

from cli.__main__ import main
from tests.unit.cli.workload import ANSWER, WORD, requests, write_log

pytestmark = pytest.mark.slow

QUANTA = ("--quantum-tokens", "64", "--route-quantum-tokens", "1024")
POLICIES = ("--policy", "dlpm", "--route", "doubleq")


def tune(tmp_path: Path, lines: list[object], *options: str) -> int:
    trace = str(write_log(tmp_path / "log.jsonl", lines))
    return main(
        ["tune", "--trace", trace, "--out", str(tmp_path / "out"), "--processes", "1", *QUANTA, *POLICIES, *options]
    )


def test_a_front_for_each_notion_of_fairness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, requests(20), "--quantum-tokens", "64,512") == 0
    said = capsys.readouterr().out
    assert "recommended: dlpm Q^u=" in said
    assert "T_user" not in said, "nothing reads it"
    drawn = (tmp_path / "out" / "tune.svg").read_text()
    assert "slowdown, times the latency alone" in drawn
    assert "gap, cost units" in drawn


def test_a_client_that_gets_nothing_bars_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The app's limit is used up by the one before the other comes."""
    lines = [*requests(8, clients=1), {"timestamp": 1, "user": "late", "prompt": WORD * 60, **ANSWER}]
    options = ("--throttle", "rpm", "--user-per-minute", "60", "--app-per-minute", "4,600")
    assert tune(tmp_path, lines, *options) == 0
    said = capsys.readouterr().out
    starving = "dlpm Q^u=64 + doubleq Q^w=1024, T_user=60, T_app=4"
    assert f"{starving}: 5 throttled app (app_per_minute 4)" in said
    assert f"{starving}: no call of late was answered" in said
    assert "recommended: dlpm Q^u=64 + doubleq Q^w=1024, T_user=60, T_app=600" in said


def test_an_option_without_effect_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One worker has no use for Q^w, and nobody comes near a limit."""
    options = ("--route-quantum-tokens", "512,1024", "--throttle", "rpm", "--app-per-minute", "5,600")
    assert tune(tmp_path, requests(8), *options, "--user-per-minute", "30,60") == 0
    said = capsys.readouterr().out
    assert "Q^w has no effect here: 512, 1024 give equal results" in said
    assert "T_user has no effect here: 30, 60 give equal results" in said
    assert "T_app makes" not in said
    assert "Q^u makes" not in said


def test_nothing_is_recommended_when_somebody_never_gets_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*requests(6), {"timestamp": 1, "user": "long", "prompt": WORD * 4000, **ANSWER}]
    assert tune(tmp_path, lines, "--max-prompt-tokens", "1000") == 1
    said = capsys.readouterr()
    assert "no call of long was answered" in said.out
    assert "1 rejected too long (max_prompt_tokens 1000" in said.out
    assert "recommended:" not in said.out
    complaint = "fairlead: no recommendation: under every configuration some client has no answered call"
    assert said.err.splitlines()[-1] == complaint, "after lines of progress where the machine is slow"
    assert (tmp_path / "out" / "tune.csv").exists()


def test_a_throttle_has_a_sweep_of_its_own(tmp_path: Path) -> None:
    assert tune(tmp_path, requests(40, clients=2), "--throttle", "sliding-rpm") == 0
    with (tmp_path / "out" / "tune.csv").open() as file:
        refused = {row["configuration"].split(", ")[-1]: int(row["refused"]) for row in csv.DictReader(file)}
    assert refused == {"T_user=15": 10, "T_user=60": 0, "T_user=240": 0}


def test_a_limit_that_nothing_reads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, requests(2), "--user-per-minute", "10,60") == 1
    said = capsys.readouterr().err
    assert said.startswith("fairlead: --user-per-minute: --throttle none does not use it")
    assert "[10, 60]" in said


def test_a_quantum_that_no_route_reads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, requests(2), "--route", "least-delay") == 1
    said = capsys.readouterr().err
    assert said == "fairlead: --route-quantum-tokens: only the route doubleq has a quantum, got least-delay\n"


def test_every_number_of_a_sweep_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--trace", "mine.csv", "--quantum-tokens", "64,x"])
    assert "'x' is not an integer of at least 1" in capsys.readouterr().err


def test_policies_are_tried_before_their_quanta_and_the_options_to_set_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace without reuse and without a queue: all policies give the same."""
    monkeypatch.setenv("COLUMNS", "80")
    trace = tmp_path / "calm.csv"
    trace.write_text("arrival_s,client,input_tokens,output_tokens\n0,a,64,5\n1,b,64,5\n2,a,64,5\n")
    options = ("--policy", "vtc,dlpm,fcfs", "--quantum-tokens", "64,512", "--processes", "1")
    assert main(["tune", "--trace", str(trace), "--out", str(tmp_path / "out"), *options]) == 0
    with (tmp_path / "out" / "tune.csv").open() as file:
        names = [row["configuration"] for row in csv.DictReader(file)]
    assert names == sorted(names), "equally good: by name"
    assert names[:3] == ["dlpm Q^u=512 + least-delay", "dlpm Q^u=64 + least-delay", "fcfs + least-delay"]
    said = capsys.readouterr().out
    assert "no prefix is used again (hit rate at most 0.0%)" in said
    assert "as good, with a slowdown and a throughput within 10%" in said
    assert "no difference beyond noise (throughput within 1%) to dlpm Q^u=64 + least-delay; fcfs + least-delay" in said
    table = said.partition("\n\n")[2].partition("slowdown: times")[0].splitlines()
    assert [line for line in table if len(line) > 80] == []
    assert [name for name in names if not any(line.startswith(f"{name} ") for line in table)] == [], "whole names"
    assert "FAIRLEAD_WORKER_POLICY=dlpm FAIRLEAD_WORKER_QUANTUM_TOKENS=512" in said
    assert "FAIRLEAD_SCHEDULER_POLICY=least-delay\n" in said


def test_where_there_are_several_workers_the_way_to_place_is_tried_with_the_best_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, requests(6), "--workers", "2", "--route", "round-robin,doubleq") == 0
    with (tmp_path / "out" / "tune.csv").open() as file:
        tried = {row["configuration"] for row in csv.DictReader(file)}
    assert {"dlpm Q^u=512 + round-robin", "dlpm Q^u=512 + doubleq Q^w=4096"} < tried
    assert len(tried) == 3, "and the quantum of the best"
    assert tune(tmp_path, requests(2), "--route", "sideways") == 1
    assert "--route: unknown policy: sideways" in capsys.readouterr().err

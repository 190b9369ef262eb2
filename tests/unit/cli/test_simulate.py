"""`fairlead simulate` as an operator uses it, and what it refuses before anything is simulated."""

import argparse
import csv
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.__main__ import main
from cli.limit_options import NAMES, READ_BY
from cli.objective import MOST_WORKERS, fewest
from cli.pool_options import add_pool_options, scenario
from local_worker.config import WorkerConfig
from local_worker.core.limits import BLOCK_TOKENS
from local_worker.sizes import limits, quantum_tokens
from simulation.spec import ADMISSIONS, SERVED
from simulation.step_time import Coefficients, MeasuredProfile, profile
from tests.unit.cli.commands import Command
from tests.unit.cli.workload import ANSWER, WORD, requests, write_log
from throttler.core.profiles import RateLimits

pytestmark = pytest.mark.slow


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write_log(tmp_path / "log.jsonl", requests(4)))


def simulate(trace: str, out: Path, *options: str) -> int:
    return main(["simulate", "--trace", trace, "--out", str(out), "--processes", "1", *options])


def test_policies_are_compared_and_refusals_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*requests(30), {"timestamp": 3, "user": "late", "prompt": WORD * 4000, **ANSWER}]
    trace, out = str(write_log(tmp_path / "log.jsonl", lines)), tmp_path / "new" / "out"
    assert simulate(trace, out, "--kv-tokens", "2048", "--policy", "dlpm,fcfs") == 0
    said = capsys.readouterr().out
    assert "fcfs + least-delay: 1 rejected too long (max_prompt_tokens 65536, kv_tokens 2048)" in said
    assert "fcfs + least-delay: no call of late was answered" in said
    assert "plots and numbers" in said
    with (out / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["answered"], row["least answered"]) for row in rows] == [("30", "0.0")] * 2
    assert (out / "dlpm+least-delay.svg").exists()


def test_a_flooder_makes_no_unfair_policy_look_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flood waits longest under the fair policies, everybody else under the others."""
    flood = [(n / 50, "flood", 600, 40) for n in range(120)]
    light = [(0.5 + n / 8, f"light-{n % 4}", 50, 10) for n in range(24)]
    lines = [",".join(map(str, call)) for call in flood + light]
    trace = tmp_path / "flooded.csv"
    trace.write_text("\n".join(["arrival_s,client,input_tokens,output_tokens", *lines]))
    policies = ["fcfs", "lpm", "vtc", "dlpm"]
    assert simulate(str(trace), tmp_path / "out", "--policy", ",".join(policies), "--max-running", "8") == 0
    with (tmp_path / "out" / "summary.csv").open() as file:
        rows = [row["configuration"].removesuffix(" + least-delay") for row in csv.DictReader(file)]
    assert set(rows[:2]) == {"vtc", "dlpm"}, "best first"
    assert set(rows[2:]) == {"fcfs", "lpm"}
    said = capsys.readouterr().out
    assert "are within their client's fair share: their times are shown first" in said
    assert said.split("recommended: ")[1].startswith((f"{rows[0]} + least-delay", f"{rows[1]} + least-delay"))
    assert f"FAIRLEAD_WORKER_POLICY={rows[0]}" in said or f"FAIRLEAD_WORKER_POLICY={rows[1]}" in said
    with (tmp_path / "out" / "clients.csv").open() as file:
        clients = {(row["configuration"], row["client"]): row for row in csv.DictReader(file)}
    assert len(clients) == 5 * len(policies)
    assert clients["dlpm + least-delay", "flood"]["calls within its share"] == "0.0"
    assert float(clients["dlpm + least-delay", "light-0"]["calls within its share"]) == 1.0


def test_workers_for_an_objective_and_what_tokens_cost_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step takes a second and a batch holds one call: with one worker the last of four waits for three."""
    times = Coefficients(step=1.0, sequence=0.0, weights=0.0, token=0.0, context=0.0, pair=0.0)
    MeasuredProfile(coefficients=times, kv_tokens=1600).write(tmp_path / "profile.json")
    trace = tmp_path / "four.csv"
    trace.write_text("\n".join(["arrival_s,client,input_tokens,output_tokens", *(f"0,u{n},100,1" for n in range(4))]))
    options = ("--profile", str(tmp_path / "profile.json"), "--max-running", "1", "--route", "least-loaded")
    assert simulate(str(trace), tmp_path / "out", *options, "--objective", "p99-ttft=2500ms", "--price", "3.6") == 0
    said = capsys.readouterr().out
    assert "2 workers meet p99-ttft of at most 2.5 s: 2.002 s" in said
    assert "with 1 worker it is 4.0" in said
    assert "cost 9.9" in said, "two seconds of two workers at 0.001 for 404 tokens"


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    policies = ["fcfs", "lpm", "vtc", "dlpm", "drr", "lcf"]
    trace = tmp_path / "calls.csv"
    lines = [f"{n / 50},u{n % 5},200,60" for n in range(300)]
    trace.write_text("\n".join(["arrival_s,client,input_tokens,output_tokens", *lines]))
    options = ("--policy", ",".join(policies), "--out", str(tmp_path / "out"), "--processes", "1")
    command = Command(tmp_path).start("simulate", "--trace", str(trace), *options)
    command.wait_for("fcfs + least-delay: slowdown ")
    assert command.end(signal.SIGINT) == 130
    said = command.rest()
    with (tmp_path / "out" / "summary.csv").open() as file:
        done = [row["configuration"] for row in csv.DictReader(file)]
    assert 1 <= len(done) < len(policies)
    assert f"interrupted: {len(done)} of {len(policies)} configurations are done" in said
    assert "recommended: " in said


@pytest.mark.parametrize("text", ["p99-ttft", "p99-ttft=2", "p50-ttft=2s", "p99-ttft=-2s", "mean-ttft=nans"])
def test_an_unknown_objective_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--trace", "mine.csv", "--objective", text])
    assert f"{text!r} is not of the form p99-ttft=2s" in capsys.readouterr().err


@given(st.integers(1, MOST_WORKERS + 1), st.integers(1, MOST_WORKERS))
def test_the_fewest_workers_that_are_enough_are_found_and_one_fewer_was_tried(enough: int, first: int) -> None:
    tried: list[int] = []

    def is_met(workers: int) -> bool:
        tried.append(workers)
        return workers >= enough

    found = fewest(is_met, first)
    assert found == (enough if enough <= MOST_WORKERS else None)
    assert tried[0] == first
    assert found is None or found == 1 or found - 1 in tried
    assert len(set(tried)) == len(tried) <= 2 * 11


def test_the_workers_own_options_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for name in ("max_running", "token_budget", "block_tokens"):
        assert f"--{name.replace('_', '-')}" in said
        assert f"(default: {getattr(SERVED, name)})" in said


def test_the_simulated_worker_has_the_real_ones_defaults() -> None:
    real = WorkerConfig(secret="s" * 16)
    taken = limits(real, "cuda", 8192, BLOCK_TOKENS)
    assert SERVED.block_tokens == BLOCK_TOKENS
    for name in ("admission", "cost", "fairness_levels", "preemption_quanta"):
        assert getattr(SERVED, name) == getattr(real, name)
    assert (SERVED.max_running, SERVED.token_budget) == (taken.max_running, taken.token_budget)
    assert SERVED.quantum_tokens == quantum_tokens(real, "cuda")


def test_options_of_the_worker_change_what_is_simulated(tmp_path: Path) -> None:
    trace = str(write_log(tmp_path / "log.jsonl", requests(12, words=400)))
    simulate(trace, tmp_path / "few")
    simulate(trace, tmp_path / "many", "--token-budget", "2048", "--max-running", "1024", "--block-tokens", "64")
    simulate(trace, tmp_path / "dear", "--cost", "weighted-tokens:3,2", "--admission", "optimistic")
    few, many, dear = ((tmp_path / name / "summary.csv").read_text() for name in ("few", "many", "dear"))
    assert len({few, many, dear}) == 3


def test_accounts_are_kept_as_the_options_say() -> None:
    parser = argparse.ArgumentParser()
    add_pool_options(parser)
    given = ["--trace", "mine.csv", "--fairness-levels", "tenant,user,interaction"]
    for options, levels in ((given[:2], "tenant,user"), (given, "tenant,user,interaction")):
        worker = scenario(parser.parse_args(options), "dlpm", "least-delay", 512, 4096, RateLimits()).spec.worker
        assert worker.fairness_levels == levels


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--token-budget", "32"), "token_budget: must be above max_running (128)"),
        (("--kv-tokens", "100"), "kv_tokens: must be a positive multiple of block_tokens (16), got 100"),
        (("--kv-tokens", "7"), "--kv-tokens: must be at least a page of 16 tokens, got 7"),
        (("--cost", "gold"), "cost: must be one of weighted-tokens, profiled, normalized, got 'gold'"),
        (
            ("--fairness-levels", "interaction"),
            "fairness_levels: expected some of tenant, user, interaction in",
        ),
        (("--policy", "fair"), "--policy: unknown policy: fair; known policies:"),
        (("--user-per-minute", "5"), "--user-per-minute: --throttle none does not use it, only oit, rpm, sliding-rpm"),
        (("--throttle", "sliding-rpm", "--app-per-minute", "7"), "--app-per-minute: --throttle sliding-rpm does not"),
        (
            ("--gpu", "a10g", "--model", "llama-2-13b"),
            "--model: llama-2-13b does not fit on a10g: 26.0 GB of weights, and nine tenths of its 24 GB are 21.6 GB",
        ),
        (
            ("--kv-tokens", "1000000"),
            "--kv-tokens: 1000000 tokens take 131.1 GB, the weights 16.1 GB: a100-80g has 80",
        ),
        (("--profile", "p.json", "--gpu", "h100"), "--profile: replaces GPU and model: leave out --gpu h100"),
        (("--trace", "none.csv"), "there is no trace none.csv"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    assert simulate(trace, tmp_path / "out", *options) == 1
    error = capsys.readouterr().err
    assert error.startswith("fairlead: ")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("--workers", "0"), ("--limit", "-3"), ("--speed", "0"), ("--speed", "inf"), ("--kv-tokens", "many")],
        *[("--processes", "0"), ("--token-budget", "0"), ("--block-tokens", "-1"), ("--workers", "1025")],
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--trace", "mine.csv", option, value])
    said = capsys.readouterr().err
    assert option in said
    assert repr(value) in said


def test_a_folder_that_cannot_be_is_refused_before_anything_runs(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    assert simulate(trace, tmp_path / "file") == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"fairlead: --out: cannot write to {tmp_path / 'file'}: ")
    assert said.out == ""
    assert simulate(trace, tmp_path / "file" / "below") == 1
    assert (tmp_path / "file").read_text() == "kept"


def test_a_file_that_cannot_be_written_is_no_traceback(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "summary.csv").mkdir(parents=True)
    assert simulate(trace, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert error.startswith("fairlead: ")
    assert error.endswith(f"{str(tmp_path / 'out' / 'summary.csv')!r}\n")
    assert error.count("\n") == 1


def test_a_measured_profile_stands_for_gpu_and_model(trace: str, tmp_path: Path) -> None:
    times = profile("h100", "llama-3.1-8b")
    MeasuredProfile(coefficients=times.coefficients, kv_tokens=5000).write(tmp_path / "profile.json")
    assert simulate(trace, tmp_path / "out", "--profile", str(tmp_path / "profile.json")) == 0
    assert simulate(trace, tmp_path / "same", "--gpu", "h100", "--kv-tokens", "4992") == 0
    measured, general = ((tmp_path / name / "summary.csv").read_text() for name in ("out", "same"))
    assert measured == general


def test_a_file_that_is_no_profile_is_named(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = write_log(tmp_path / "profile.json", [{"kv_tokens": 5}])
    assert simulate(trace, tmp_path, "--profile", str(profile)) == 1
    assert "profile.json" in capsys.readouterr().err


def test_a_run_that_answers_nothing_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write_log(tmp_path / "log.jsonl", requests(1, words=400)))
    assert simulate(trace, tmp_path / "out", "--kv-tokens", "64") == 1
    assert "no request was answered: all 1 requests are too long" in capsys.readouterr().err


def test_without_matplotlib_the_numbers_are_written(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert simulate(trace, tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "clients.csv",
        "dlpm+least-delay.csv",
        "summary.csv",
    ]
    said = capsys.readouterr().out
    assert "dlpm + least-delay" in said
    assert said.count("pip install 'fairlead-serving[demo]'") == 1


def test_a_quantum_that_no_route_reads_is_refused(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(trace, tmp_path / "out", "--route-quantum-tokens", "512") == 1
    assert "--route-quantum-tokens: only the route doubleq has a quantum, got least-delay" in capsys.readouterr().err


def test_clients_are_drawn_whatever_they_are_called(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,client,input_tokens,output_tokens\n0,_u,64,5\n1,ann,64,5\n")
    assert simulate(str(trace), tmp_path / "out") == 0
    assert "client _u" in (tmp_path / "out" / "dlpm+least-delay.svg").read_text()


def test_requests_left_out_of_a_trace_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*requests(3), {"timestamp": 1, "prompt": WORD, "error": {"message": "no"}}]
    assert simulate(str(write_log(tmp_path / "log.jsonl", lines)), tmp_path / "out") == 0
    assert "1 requests that failed are left out" in capsys.readouterr().err


def test_the_size_of_a_traces_blocks_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens,blocks\n0,64,5,1\n1,64,5,1\n")
    assert simulate(str(trace), tmp_path / "out") == 1
    assert "--trace-block-tokens" in capsys.readouterr().err
    assert simulate(str(trace), tmp_path / "out", "--trace-block-tokens", "64") == 0
    with (tmp_path / "out" / "summary.csv").open() as file:
        [row] = csv.DictReader(file)
    assert float(row["hit rate"]) > 0.25


def test_every_throttle_says_which_limits_it_reads() -> None:
    assert set(READ_BY) == set(ADMISSIONS)
    assert {name for names in READ_BY.values() for name in names} == set(NAMES)

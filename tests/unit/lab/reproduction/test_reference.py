"""Reading measurements and holding the simulator against them: on a folder made here, whose truth is known."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.loops import OpenLoop
from lab.reproduction.__main__ import main
from lab.reproduction.agreement import compare, simulate
from lab.reproduction.fitted import SLORA
from lab.reproduction.reference import read_run, run_names
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.traces import SourceMissing

pytestmark = pytest.mark.slow

COLUMNS = ("client", "arrival_s", "input_tokens", "output_tokens", "first_token_s", "latency_s")
Measured = Callable[[SimulatedCall], tuple[float, float]]


def faithful(call: SimulatedCall) -> tuple[float, float]:
    return call.first_token_latency, call.latency


def late(call: SimulatedCall) -> tuple[float, float]:
    """Only client 1 waits, 30 s more."""
    extra = 30.0 if call.client == "1" else 0.0
    return call.first_token_latency + extra, call.latency + extra


def write(folder: Path, name: str, rows: list[tuple[object, ...]]) -> None:
    with gzip.open(folder / f"{name}.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    (folder / "MANIFEST.json").write_text(json.dumps([{"file": f"{name}.csv.gz"}]))


def measure(folder: Path, name: str, measured: Measured) -> None:
    """A folder in which the simulator itself was measured: client 0 sends a third, client 1 twice that."""
    write(folder, name, [(n % 3 and 1, n * 0.2, 256, 128, 0.0, 0.0) for n in range(240)])
    run = read_run(folder, name)
    calls = run.calls()
    SimulatedCluster(run.spec(SLORA[run.pool]), OpenLoop(calls)).run()
    write(
        folder,
        name,
        [
            (c.client, c.arrival, 256, 128, *(measured(c) if c.completed else (-1, -1)))
            for c in sorted(calls, key=lambda call: call.number)
        ],
    )


@pytest.mark.parametrize("name", ["VTC__overload", "FCFS__overload", "LShare__rpm5__real"])
def test_a_faithful_measurement_agrees_to_the_last_bit(tmp_path: Path, name: str) -> None:
    measure(tmp_path, name, faithful)
    run = read_run(tmp_path, name)
    agreement = compare(run, simulate(run, SLORA[run.pool]))
    assert agreement.total < 1e-9
    assert max(agreement.waits.values()) < 1e-9
    assert max(agreement.curves.values()) < 1e-9
    assert agreement.longest
    assert agreement.refused[0] == agreement.refused[1]
    assert (agreement.refused[0] > 0) == name.startswith("LShare")


def test_a_difference_from_the_reference_is_reported_where_it_is(tmp_path: Path) -> None:
    measure(tmp_path, "VTC__overload", late)
    run = read_run(tmp_path, "VTC__overload")
    agreement = compare(run, simulate(run, SLORA[run.pool]))
    assert agreement.waits["0"] < 1e-9 < agreement.waits["1"]
    assert agreement.curves["0"] < 1e-9 < 0.1 < agreement.curves["1"]
    assert agreement.total > 0.05
    measured, simulated = agreement.slowest
    assert (measured.client, measured.requests) == ("1", 160)
    assert measured.measured - measured.simulated == pytest.approx(30.0)
    assert simulated.client in agreement.waits


def test_the_pools_of_the_measured_systems_are_told_by_the_names(tmp_path: Path) -> None:
    name = "sec6.4__35000__VTC-256__overload-s4"
    write(tmp_path, name, [(0, 0.0, 256, 256, 1.0, 9.0)])
    run = read_run(tmp_path, name)
    assert (run.scheduler, run.kv_tokens, run.pool) == ("VTC", 35000, "a100-80g llama-2-13b")


def test_a_profiled_run_is_charged_as_its_authors_charged(tmp_path: Path) -> None:
    write(tmp_path, "VTC_profile__real", [(0, 0.0, 256, 256, 1.0, 9.0)])
    run = read_run(tmp_path, "VTC_profile__real")
    cost = run.spec(SLORA[run.pool]).worker.make_cost()
    whole = 0.21001891 * 700 + 0.10075395 * 300 + 0.0039868 * 700 * 300 + 0.00324733 * 300 * 300 + 1.14601454
    parts = cost.extend(700, 0) + sum(cost.decode(tokens, 700, made) for made, tokens in ((0, 1), (1, 99), (100, 200)))
    assert parts == int(whole * MICRO)
    assert cost.extend(0, 0) == 0


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=str(tmp_path)):
        run_names(tmp_path)


def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(tmp_path, "VTC__overload", faithful)
    out = tmp_path / "out"
    options = ["--reference", str(tmp_path), "--out", str(out), "--processes", "1"]
    assert main(["vtc-measured", *options]) == 0
    assert (
        "| predicted: total time | within 5 % | 1 of 1 pairs; worst 0.0% | yes | in all pairs |"
        in capsys.readouterr().out
    )
    [row] = csv.DictReader((out / "vtc-measured.csv").read_text().splitlines())
    assert row["pair"] == "VTC__overload"
    assert row["same client waits longest"] == "True"


def test_a_crowded_pair_is_held_against_itself_with_jitter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(tmp_path, "VTC__real", late)
    options = ["--reference", str(tmp_path), "--out", str(tmp_path), "--processes", "1"]
    assert main(["vtc-measured", *options]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "8 or 27 clients" in line]
    assert len(rows) == 5
    assert "as many as by jitter alone: 0 and 0 of 1" in rows[-1]
    assert (
        "| 1 and 1 of 1 | yes | at most two standard deviations more, 2.0 and 2.0 |" in rows[-1]
    )  # client 1 waits 30 s more, which jitter does not


def test_an_unknown_item_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vtc-fig99"]) == 1
    assert "vtc-fig99" in capsys.readouterr().err

"""The evaluation beyond the papers: which trials there are, what is kept of them, and how it is judged."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.loops import OpenLoop
from lab.reproduction.__main__ import main as reproduction
from lab.reproduction.beyond import main
from lab.reproduction.beyond_report import report
from lab.reproduction.beyond_trial import (
    CONTENDERS,
    OURS,
    RIVALS,
    SYSTEMS,
    UNEQUAL,
    Cell,
    Measures,
    Trial,
    cells,
    keep,
    load,
    trials,
)
from simulation.cluster import SimulatedCluster

MEASURES = Measures(
    service=100.0, jain=0.9, p50=1.0, p99=2.0, first_token=3.0, first_token_all=4.0, hits=0.5, seconds=60.0
)
QA = Cell("S2, Long-context QA", 1)


def test_every_system_runs_in_every_cell_of_the_figure_and_contenders_come_first() -> None:
    found = list(trials(3))
    assert len(cells()) == 24, "and one with unequal workers"
    assert len(found) == len(set(found)) == 3 * 24 * len(SYSTEMS)
    first = found[: 3 * 24 * (1 + len(CONTENDERS))]
    assert {trial.system for trial in first} == {OURS, *CONTENDERS}
    assert [trial.seed for trial in first] == sorted(trial.seed for trial in first)
    assert len({trial.file for trial in found}) == len(found)


def test_a_kept_result_is_found_again_and_a_broken_write_is_not(tmp_path: Path) -> None:
    trial = Trial(QA, OURS, 1)
    assert load(tmp_path, trial) is None
    (tmp_path / f"{trial.file}.partial").write_text("{")
    assert load(tmp_path, trial) is None
    keep(tmp_path, trial, MEASURES)
    assert load(tmp_path, trial) == MEASURES
    assert load(tmp_path, replace(trial, seed=2)) is None


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (MEASURES, "default is met"),
        (replace(MEASURES, service=96.0), "0 of 1 cells; not in S2, Long-context QA, D = 1 (0.96 of DoubleQ"),
        (replace(MEASURES, p99=2.1), "P99 of the well-behaved at most 1.03 times the best rival's: in 0 of 1"),
        (
            replace(MEASURES, first_token=3.2),
            "first token of the well-behaved at most 1.03 times the best rival's: in 0",
        ),
    ],
)
def test_the_rule_for_a_new_default(ours: Measures, verdict: str) -> None:
    text = report({Trial(QA, OURS, 1): ours} | {Trial(QA, name, 1): MEASURES for name in RIVALS})
    assert verdict in text
    assert ("**not** met" in text) == (ours is not MEASURES)


def test_ratios_are_of_the_seeds_that_both_ran() -> None:
    seeds = {Trial(QA, OURS, seed): replace(MEASURES, service=100.0 * seed) for seed in (1, 2)}
    text = report(seeds)
    assert "all contenders ran in 0 of 24 cells" in text
    assert f"| {QA} | {OURS} | 2 | 150 |" in text
    first, *others = CONTENDERS
    both = {Trial(QA, first, seed): MEASURES for seed in (1, 2)}
    text = report(seeds | both | {Trial(QA, name, 1): MEASURES for name in others})
    assert f"| {QA} | 1.50 (1.00) |" + " 1.00 |" * len(others) in text


def test_the_command_prints_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, Trial(QA, OURS, 1), MEASURES)
    assert main(["--results", str(tmp_path), "--report"]) == 0
    assert "1 trials" in capsys.readouterr().out


def test_the_command_is_one_of_the_reproductions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, Trial(QA, OURS, 1), MEASURES)
    assert reproduction(["beyond", "--results", str(tmp_path), "--report"]) == 0
    assert "1 trials" in capsys.readouterr().out
    assert reproduction(["beyond", "--results", str(tmp_path / f"{Trial(QA, OURS, 1).file}"), "--report"]) == 1
    assert capsys.readouterr().err.startswith("reproduction beyond: --results: ")
    assert reproduction(["--list"]) == 0
    assert "\nbeyond " in capsys.readouterr().out


def test_every_second_worker_is_slower_in_the_cell_of_unequal_workers() -> None:
    spec = replace(SYSTEMS[OURS].spec(4, 16), slowdowns=(1.0, UNEQUAL.slower))
    workers = SimulatedCluster(spec, OpenLoop([])).workers
    assert [worker.slowdown for worker in workers.values()] == [1.0, 3.0, 1.0, 3.0]


@pytest.mark.slow
def test_a_trial_measures_a_run() -> None:
    measures = Trial(QA, OURS, 1).run()
    assert measures.service > 0
    assert 0 < measures.p50 <= measures.p99 < measures.seconds
    assert 0 < measures.hits < 1

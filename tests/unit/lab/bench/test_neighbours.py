"""The neighbours' test: what it counts, and its short form on real processes."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from lab.bench.flood.call import ObservedCall
from lab.bench.flood.phase import Phase
from lab.bench.flood.workload import Workload
from lab.bench.neighbours.__main__ import compare
from lab.bench.neighbours.neighbour import LONGEST_PROMPT, neighbours
from lab.bench.neighbours.report import misses, table
from lab.bench.neighbours.row import Row, rows
from lab.bench.neighbours.step_tally import Tally, TallyWriter, read_tally
from lab.bench.neighbours.tallied_worker import TalliedEngine, TimedEngine
from lab.bench.neighbours.trial import QUIET, Observation
from local_worker.core.batch import Batch, Entry, Slice
from local_worker.engine.fake import FakeEngine
from serving.sampling_params import SamplingParams
from simulation.step_time import StepTime, profile

BLOCK = 16


def piece(request: int, start: int, stop: int, prompt: int, samples: bool = False) -> Slice:
    """A slice of a request whose pages are its own."""
    pages = tuple(range(1000 * request, 1000 * request + -(-stop // BLOCK)))
    tokens = (7,) * (stop - start)
    return Slice(request, tokens, start, stop, pages, samples, SamplingParams(), prompt)


def entry(request: int, prompt: int, client: str) -> Entry:
    return Entry(request, (7,) * prompt, client)


def test_a_tally_counts_what_is_new_for_each_client_and_what_the_cache_served(tmp_path: Path) -> None:
    both = Batch((piece(0, 32, 60, 100), piece(1, 0, 20, 20, True)), (entry(0, 100, "a"), entry(1, 20, "b")))
    after = Batch((piece(0, 60, 100, 100, True), piece(1, 20, 21, 20, True)))
    preempted = Batch((piece(0, 0, 101, 100, True),), (entry(0, 101, "a"),), (0,))  # its last position is new
    with closing(TallyWriter(tmp_path / "tally")) as writer:
        writer.add(both, 1, 1)
        writer.add(after, 2, 3)
        writer.add(preempted, 1, 4)
    whole = read_tally(tmp_path / "tally", 0, 4)
    assert whole.computed == {"a": 28 + (40 + 2) + 2, "b": (20 + 2) + 2}
    assert (whole.prompts, whole.cached) == (120, 32)
    assert (whole.busy, whole.longest_step) == (4, 2)
    last = read_tally(tmp_path / "tally", 1, 3)
    assert last.computed == {"a": 42, "b": 2}
    assert (last.prompts, last.busy) == (0, 2)


def seconds_of(part: Slice, tally: Path) -> float:
    """The time of a step with one slice."""
    seconds = StepTime(profile("a100-80g", "llama-3.1-8b").coefficients)
    with closing(TimedEngine(FakeEngine(257, 0.0, BLOCK), seconds, TallyWriter(tally))) as engine:
        step = engine.launch(Batch((part,), (entry(part.request, part.prompt_tokens, "a"),)))
    assert len(step.wait().tokens) == part.samples
    return read_tally(tally, 0, 1e12).longest_step


def test_a_step_takes_the_time_of_its_tokens_and_of_the_context_that_they_read(tmp_path: Path) -> None:
    short = seconds_of(piece(0, 0, 16, 16, True), tmp_path / "short")
    early = seconds_of(piece(0, 0, 512, 32_768), tmp_path / "early")
    late = seconds_of(piece(0, 32_256, 32_768, 32_768, True), tmp_path / "late")
    assert late > 1.5 * early > 3 * short > 0


def test_a_step_of_a_real_engine_takes_the_time_until_it_is_computed(tmp_path: Path) -> None:
    seconds = 0.05
    with closing(TalliedEngine(FakeEngine(257, seconds, BLOCK), TallyWriter(tmp_path / "tally"))) as engine:
        step = engine.launch(Batch((piece(0, 0, 16, 16, True),), (entry(0, 16, "a"),)))
        assert len(step.wait().tokens) == 1
    tally = read_tally(tmp_path / "tally", 0, 1e12)
    assert tally.longest_step >= seconds
    assert tally.computed == {"a": 16 + 2}


def test_neighbours_of_a_small_model_ask_in_proportion() -> None:
    names = {each.name for each in neighbours(LONGEST_PROMPT // 16)}
    assert {"prompts of 256", "prompts of 2,048", "outputs of 125", "short calls"} <= names
    assert len(names) == len(neighbours(LONGEST_PROMPT))


def asked(sent: float, *tokens_at: float) -> ObservedCall:
    return ObservedCall(QUIET, sent, list(tokens_at), done=bool(tokens_at))


ALONE = Phase(0.0, 10.0, [asked(float(at), at + 0.1, at + 0.15) for at in range(5)])


def observed(policy: str, beside: str, work: int, wait: float = 0.2, busy: float = 10.0) -> list[Observation]:
    """A policy's observations alone and beside one neighbour, in windows of 10 s."""
    phase = Phase(20.0, 30.0, [asked(21.0, 21.0 + wait, 21.1 + wait), asked(29.5)])
    computed = {"quiet": 100, "crowd/user-0": work, "crowd/user-1": work}
    tally = Tally(30.0, computed, prompts=2000, cached=500, busy=busy, longest_step=0.25)
    return [Observation(policy, "", ALONE, Tally()), Observation(policy, beside, phase, tally)]


def found(**fair: float) -> Row:
    [row, _] = rows([*observed("dlpm", "noise", 1000, **fair), *observed("fcfs", "noise", 1020)])
    return row


def test_a_row_has_what_neighbours_and_all_get_and_the_part_of_what_fcfs_gives() -> None:
    row = found()
    assert (row.policy, row.neighbours, row.total) == ("dlpm", 200.0, (100 + 2000 + 500) / 10)
    assert row.of_baseline == pytest.approx(2600 / 2640)
    assert row.hit_rate == 0.25
    [saturated, _] = rows([*observed("dlpm", "noise", 1000), *observed("fcfs", "noise", 1020, busy=5.0)])
    assert saturated.of_baseline is None


def test_a_question_without_an_answer_counts_with_its_wait_and_targets_are_beyond_two_steps() -> None:
    row = found()
    assert row.first.p50 == pytest.approx((0.2 + 0.5) / 2)
    assert row.between is not None
    assert (row.between.p50, row.between_alone.p50) == (pytest.approx(0.1), pytest.approx(0.05))
    assert row.allowed == pytest.approx(1.2 * 0.1 + 2 * 0.25)
    assert row.misses == []
    assert found(wait=3.0).misses == ["first token"]


def test_the_report_names_what_is_missed() -> None:
    both = rows([*observed("dlpm", "noise", 900, wait=3.0), *observed("fcfs", "noise", 1020)])
    assert "| noise | dlpm | 1.75 / 2.98 |" in table(both)
    assert misses(both, "dlpm") == (
        "dlpm keeps the targets beside 0 of 1 neighbours; it misses them beside: noise (first token, throughput)"
    )
    assert misses(both, "fcfs") == "fcfs keeps the targets beside 1 of 1 neighbours"


@pytest.mark.e2e
@pytest.mark.slow
def test_beside_each_neighbour_a_fair_policy_answers_the_quiet_user_and_wastes_no_engine(tmp_path: Path) -> None:
    names = ("short calls", "prompts of 32,768", "callers that hang up", "bodies that are refused")
    chosen = [each for each in neighbours(LONGEST_PROMPT) if each.name in names]
    work = Workload(quiet_every=0.4, quiet_prompt=64, quiet_answer=16)
    seen = asyncio.run(compare("fake", ["dlpm", "fcfs"], chosen, 4.0, tmp_path, work))
    print(table(seen))
    by = {(row.beside, row.policy): row for row in seen}
    assert list(by) == [(name, policy) for name in names for policy in ("dlpm", "fcfs")]
    assert not any(row.failed for row in seen)
    for name in names:
        assert by[name, "dlpm"].between is not None, f"nothing was answered beside {name}"
    for name in names[:-1]:
        assert by[name, "dlpm"].total > 0.6 * by[name, "fcfs"].total
        assert by[name, "dlpm"].neighbours > 1000
    assert by["prompts of 32,768", "dlpm"].first.p50 < by["prompts of 32,768", "fcfs"].first.p50
    assert by["bodies that are refused", "dlpm"].neighbours == 0
    assert by["bodies that are refused", "dlpm"].first.p50 < by["prompts of 32,768", "fcfs"].first.p50 / 2

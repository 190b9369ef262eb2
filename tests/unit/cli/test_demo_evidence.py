"""What the demo reports follows from what it measured."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.demo.evidence import Evidence, backlogged_gap, findings, weigh
from cli.demo.lengths import lengths_for
from cli.demo.observation import Observation, ServiceSample
from cli.demo.picture import draw
from cli.demo.report import screen, write_json
from cli.demo.systems import FCFS, LEAST_DELAY, MAX_RUNNING, VTC, System, scheduler_args, worker_args
from cli.demo.trial import Trial
from cli.demo.users import USERS, DemoRecord, UserCall
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import load
from serving.environment import ServiceName

STEP = st.tuples(*(st.tuples(st.integers(0, 9), st.booleans()) for _ in range(3)))
BOUND = 40.0


def samples_of(steps: list[tuple[tuple[int, bool], ...]]) -> list[ServiceSample]:
    service = dict.fromkeys("abc", 0.0)
    samples = []
    for at, step in enumerate(steps):
        service = {user: service[user] + got for user, (got, _) in zip("abc", step, strict=True)}
        samples.append(ServiceSample(float(at), service, {u: waits for u, (_, waits) in zip("abc", step, strict=True)}))
    return samples


def brute_force(samples: list[ServiceSample]) -> float:
    """Definition: every pair, every interval in which the one behind waits all the time."""
    worst = 0.0
    for f in "abc":
        for g in "abc":
            for start in range(len(samples)):
                for stop in range(start, len(samples)):
                    if all(sample.backlogged[f] for sample in samples[start : stop + 1]):
                        gained = samples[stop].service[g] - samples[start].service[g]
                        kept = samples[stop].service[f] - samples[start].service[f]
                        worst = max(worst, gained - kept)
    return worst


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEP, max_size=12))
def test_the_gap_is_the_largest_lead_over_a_backlogged_user(steps: list[tuple[tuple[int, bool], ...]]) -> None:
    samples = samples_of(steps)
    assert backlogged_gap(samples, list("abc")) == brute_force(samples)


def trial(system: System, cached: int, *per_second: float) -> Trial:
    """Ten seconds in which the users, always waiting, received so much service per second each."""
    record = DemoRecord([UserCall(user.name, 0.5, 1.0, 10, cached, 4) for user in USERS for _ in range(3)])
    shares = dict(zip([user.name for user in USERS], per_second, strict=True))
    waiting = dict.fromkeys(shares, True)
    samples = [ServiceSample(float(at), {u: share * at for u, share in shares.items()}, waiting) for at in range(11)]
    return Trial(system, record, Observation(samples, bound=BOUND))


def trials() -> list[Trial]:
    """As the papers have it."""
    return [trial(FCFS, 8, 9.0, 1.0, 1.0), trial(VTC, 1, 4.0, 4.0, 3.5), trial(LEAST_DELAY, 7, 4.0, 4.0, 3.0)]


def judged(*evidence: Evidence) -> list[bool]:
    return [finding.holds for finding in findings(evidence, BOUND)]


def test_the_findings_are_those_of_the_run_that_was_measured() -> None:
    fcfs, vtc, dlpm = (weigh(each) for each in trials())
    assert (fcfs.gap, vtc.gap, dlpm.gap) == (80.0, 5.0, 10.0)
    assert (fcfs.hit_rate, vtc.hit_rate, dlpm.hit_rate) == (0.8, 0.1, 0.7)
    assert dlpm.tokens_per_second == 36 / 10
    assert judged(fcfs, vtc, dlpm) == [True, True, True, True]
    assert judged(replace(fcfs, gap=BOUND), vtc, dlpm) == [False, True, True, True]
    assert judged(fcfs, vtc, replace(dlpm, gap=41.0)) == [True, False, True, True]
    assert judged(fcfs, vtc, replace(dlpm, hit_rate=0.6)) == [True, True, False, True]
    assert judged(fcfs, replace(vtc, hit_rate=0.7), dlpm) == [True, True, True, False]


def test_one_screen_says_what_was_shown() -> None:
    runs = [weigh(each) for each in trials()]
    text = screen(runs, findings(runs, BOUND), BOUND)
    for words in ("82%", "36%", "80  BEYOND", "10  within", "4 seconds", "yes  FCFS exceeds the bound"):
        assert words in text
    assert text.endswith("Verdict: fair, and the cache is kept.")


def test_one_screen_says_what_was_not_shown() -> None:
    fcfs, vtc, dlpm = (weigh(each) for each in trials())
    runs = [replace(fcfs, gap=39.0, cut=True), vtc, replace(dlpm, gap=41.0)]
    text = screen(runs, findings(runs, BOUND), BOUND)
    assert "NO   FCFS exceeds the bound" in text
    assert "39  within" in text
    assert "41  BEYOND" in text
    assert "does not support all claims" in text
    assert text.endswith("Ended by the time limit: FCFS + round robin.")


def test_the_result_fits_a_terminal() -> None:
    runs = [replace(weigh(each), gap=4_321_098.0, tokens_per_second=12_345.6, cut=True) for each in trials()]
    lines = screen(runs, findings(runs, 5_432_109.0), 5_432_109.0).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) + len(["the line that names the files", "the prompt"]) <= 24


def test_numbers_and_picture_are_written(tmp_path: Path) -> None:
    tried = trials()
    runs = [weigh(each) for each in tried]
    write_json(tmp_path / "demo.json", BOUND, findings(runs, BOUND), list(zip(runs, tried, strict=True)))
    assert len(json.loads((tmp_path / "demo.json").read_text())["runs"][2]["samples"]) == 11
    draw(tmp_path / "demo.png", BOUND, [(run, t.observation) for run, t in zip(runs, tried, strict=True)])
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_user_that_was_never_served_is_no_evidence() -> None:
    unserved = trial(FCFS, 8, 9.0, 1.0, 1.0)
    unserved.record.calls = [call for call in unserved.record.calls if call.user == "flood"]
    with pytest.raises(ValueError, match="never served alice and bob; first errors"):
        weigh(unserved)


@pytest.mark.parametrize("engine", ["transformers", "fake", "vllm"])
def test_a_question_and_its_answer_fill_whole_pages(engine: str) -> None:
    lengths = lengths_for(engine)
    assert lengths.prefix % lengths.page == (lengths.question + lengths.answer) % lengths.page == 0
    prompts = list(itertools.islice(USERS[0].prompts(lengths), 2))
    assert [len(prompt) for prompt in prompts] == [lengths.prompt] * 2
    assert prompts[0][: lengths.prefix] == prompts[1][: lengths.prefix]
    assert prompts[0] != prompts[1]
    # Room for one prefix and six calls of a user, but not for a second prefix beside more than a few.
    assert lengths.cache // lengths.page - 2 * lengths.prefix // lengths.page < MAX_RUNNING


def options_that_change(
    cls: type[SchedulerConfig | WorkerConfig], service: ServiceName, argv: Sequence[str]
) -> set[str]:
    """Return the names of the options that `argv` sets to other values than the service's defaults."""
    secret = ["--secret", "sixteen letters!"]
    defaults, changed = (asdict(load(cls, service, [*secret, *more], {}, prog="test")) for more in ((), argv))
    return {name for name in defaults if changed[name] != defaults[name]}


def test_the_third_system_differs_from_the_services_defaults_in_sizes_only() -> None:
    route = scheduler_args(LEAST_DELAY, "transformers")
    assert not options_that_change(SchedulerConfig, ServiceName.SCHEDULER, route)
    sizes = {"kv_tokens", "block_tokens", "max_prompt_tokens", "token_budget", "max_running", "quantum_tokens"}
    assert options_that_change(WorkerConfig, ServiceName.WORKER, worker_args(LEAST_DELAY, "transformers")) <= sizes

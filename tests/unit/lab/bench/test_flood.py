"""What the flood test reports follows from what its client observed, and its workload from the seed."""

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.bench.flood.call import CallFailed, ObservedCall
from lab.bench.flood.figures import Figures, Waits, figures
from lab.bench.flood.phase import Phase
from lab.bench.flood.picture import draw
from lab.bench.flood.report import table, write_json
from lab.bench.flood.simulated import simulate
from lab.bench.flood.workload import AGENT, FLOOD, QUIET, Workload
from local_worker.core.limits import SIZES
from serving.statistics import percentile


def called(
    user: str, sent: float, *tokens_at: float, prompt: int = 10, cached: int = 0, done: bool = True
) -> ObservedCall:
    """A call whose tokens came at these times; one that is not done has no usage."""
    used = (prompt, cached, len(tokens_at)) if done else (0, 0, 0)
    return ObservedCall(user, sent, list(tokens_at), "", 0, *used, done=done)


ALONE = Phase(0.0, 10.0, [called(QUIET, float(at), at + 0.5, at + 1.0) for at in range(5)])
FLOODED = Phase(
    100.0,
    110.0,
    [
        called(QUIET, 99.0, 109.0, 109.5, prompt=20),  # sent before the window: no waiting time, but tokens
        called(QUIET, 101.0, 102.0, 104.0, prompt=20),
        called(QUIET, 106.0, done=False),
        called(FLOOD, 90.0, 95.0, 99.9),  # answered before the window
        called(FLOOD, 99.0, 101.0, 103.0, cached=4),
        called(FLOOD, 108.0, 109.0, done=False),
        called(AGENT, 100.0, 101.0, 108.0, prompt=40, cached=38),
    ],
)


def found() -> Figures:
    return figures("a system", ALONE, FLOODED)


def test_waits_are_those_of_questions_sent_in_the_window() -> None:
    assert found().alone == Waits(5, 0.5, 0.5)
    waits = found().flooded
    assert (waits.count, waits.p50) == (2, 2.5)  # 1 s, and 4 s for the question without an answer
    assert waits.p99 == pytest.approx(1.0 + 0.99 * 3.0)


def test_tokens_are_those_of_calls_that_were_answered_in_the_window() -> None:
    assert found().tokens_per_second == pytest.approx((20 + 20 + 10 + 40 + 4 * 2) / 10)
    assert found().output_per_second == pytest.approx(8 / 10)
    assert found().calls_per_minute == pytest.approx(24)
    assert found().hit_rate == pytest.approx(42 / 90)
    assert found().shares == pytest.approx({QUIET: 44 / 56, AGENT: 4 / 56, FLOOD: 8 / 56})


def test_the_target_is_beyond_one_step_and_one_admission() -> None:
    gaps, ends = [0.5, 2.0, 4.9, 2.0, 7.0], [1.0, 4.0, 1.5]
    step = sorted(gaps)[-2] + 0.96 * (7.0 - 4.9)  # the percentile between the last two of five
    admission = 1.5 + 0.98 * (max(ends) - 1.5)
    assert found().step == pytest.approx(step)
    assert found().admission == pytest.approx(admission)
    assert found().target == pytest.approx(1.2 * 0.5 + step + admission)
    assert found().keeps_target


def test_an_interaction_counts_when_its_last_call_was_answered_in_the_window() -> None:
    assert found().interactions == 0
    last = called(AGENT, 104.0, 105.0)
    last.ends_interaction = True
    assert figures("x", ALONE, Phase(100.0, 110.0, [*FLOODED.calls, last])).interactions == 1
    assert figures("x", ALONE, Phase(106.0, 110.0, [*FLOODED.calls, last])).interactions == 0


def test_a_call_is_read_from_the_events_of_its_stream() -> None:
    call = ObservedCall(QUIET, 1.0)
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    for at, event in enumerate(
        [
            {"choices": [{"text": " a"}], "usage": None},
            {"choices": [{"text": ""}]},
            {"choices": [{"finish_reason": "length"}]},  # as LiteLLM ends a stream
            {"choices": [{"text": " tide"}]},
            {"choices": [], "usage": usage},
        ]
    ):
        call.observe(json.dumps(event).encode(), float(at))
    assert not call.done
    call.observe(b"[DONE]", 9.0)
    assert call == ObservedCall(QUIET, 1.0, [0.0, 3.0], " a tide", 0, 9, 8, 2, done=True)
    with pytest.raises(CallFailed, match="overloaded"):
        call.observe(b'{"error": {"message": "overloaded"}}', 9.0)


def test_usage_without_details_has_no_cached_tokens() -> None:
    call = ObservedCall(QUIET, 0.0)
    event = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}}
    call.observe(json.dumps(event).encode(), 0.0)
    assert call.cached_tokens == 0


def test_the_seed_alone_decides_the_workload() -> None:
    work, other = Workload(seed=3), Workload(seed=4)
    assert work.flood(7) == Workload(seed=3).flood(7) != other.flood(7)
    assert list(work.questions("flooded", 60.0)) == list(Workload(seed=3).questions("flooded", 60.0))
    longer = work.questions("flooded", 120.0)
    asked = list(work.questions("flooded", 60.0))
    assert list(itertools.islice(longer, len(asked))) == asked
    assert 60.0 / 2 * 0.8 < len(asked) < 60.0 / 2 * 1.2
    assert all(question.at < 60.0 for question in asked)


def test_a_users_prompts_share_a_prefix_and_nothing_else() -> None:
    work = Workload(seed=3)
    first, second = (work.flood(number).prompt.split() for number in (0, 1))
    assert len(first) == work.flood_prefix + work.flood_own
    assert first[: work.flood_prefix] == second[: work.flood_prefix]
    assert first[work.flood_prefix :] != second[work.flood_prefix :]
    steps, others = (list(work.observations(number)) for number in (0, 1))
    assert len(steps) == work.agent_calls
    assert steps[0].split()[: work.agent_prefix] == others[0].split()[: work.agent_prefix]
    assert not set(steps) & set(others)


def test_the_report_has_each_system(tmp_path: Path) -> None:
    row = found()
    [_, _, line] = table([row]).splitlines()
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "a system", "0.50 / 0.50", "2.50 / 3.97", f"{row.target:.2f}, kept", "0", "14%", "10",
    ]  # fmt: skip
    write_json(tmp_path / "flood.json", {"load": 0.5}, [(row, ALONE, FLOODED)])
    read = json.loads((tmp_path / "flood.json").read_text())
    assert read["load"] == 0.5
    assert len(read["systems"][0]["flooded"]["calls"]) == len(FLOODED.calls)


def test_the_picture_has_a_bar_for_each_system_and_measure() -> None:
    other = figures("Fairlead & others", ALONE, FLOODED)
    picture = ElementTree.fromstring(draw([found(), other]))
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("a system") == texts.count("Fairlead & others") == 1
    assert texts.count("3.97") == 2
    bars = [bar for bar in picture.iter("{http://www.w3.org/2000/svg}rect") if bar.get("fill") != "white"]
    assert len(bars) == 8


def test_the_default_quantum_of_a_cpu_shortens_the_quiet_users_wait_and_costs_no_cache_hits() -> None:
    """Two quanta of a GPU are seconds of a CPU's work."""
    small, large = (simulate("dlpm", SIZES[device].quantum_tokens, seconds=100.0) for device in ("cpu", "cuda"))
    for percent in (50, 99):
        assert percentile(small.waits, percent) < 0.75 * percentile(large.waits, percent)
    assert small.hit_rate > 0.99 * large.hit_rate

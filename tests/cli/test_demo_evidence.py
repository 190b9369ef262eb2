"""What the demo reports follows from what it measured."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.demo.evidence import backlogged_gap, weigh
from cli.demo.observation import Observation, Sample
from cli.demo.report import plot, table, verdict, write_json
from cli.demo.scenario import PERSONAS, Call, Record

STEP = st.tuples(*(st.tuples(st.integers(0, 9), st.booleans()) for _ in range(3)))


def samples_of(steps: list[tuple[tuple[int, bool], ...]]) -> list[Sample]:
    service = dict.fromkeys("abc", 0.0)
    samples = []
    for at, step in enumerate(steps):
        service = {user: service[user] + got for user, (got, _) in zip("abc", step, strict=True)}
        samples.append(Sample(float(at), service, {u: waits for u, (_, waits) in zip("abc", step, strict=True)}))
    return samples


def brute_force(samples: list[Sample]) -> float:
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


def run_with(shares: dict[str, float]) -> tuple[Record, Observation]:
    record = Record([Call(p.name, 0.5, 1.0, 10, 5, 4) for p in PERSONAS for _ in range(3)])
    final = dict.fromkeys(shares, True)
    samples = [Sample(float(at), {u: share * at for u, share in shares.items()}, final) for at in range(11)]
    return record, Observation(samples, bound=40.0)


def test_the_report_says_who_got_what_and_against_which_bound(tmp_path: Path) -> None:
    unfair_run = run_with({"flood": 9.0, "alice": 1.0, "bob": 1.0})
    fair_run = run_with({"flood": 4.0, "alice": 4.0, "bob": 3.0})
    unfair, fair = weigh("FCFS", *unfair_run), weigh("DLPM", *fair_run)
    assert (unfair.gap, fair.gap) == (80.0, 10.0)
    assert fair.jain > 0.95 > unfair.jain
    assert fair.hit_rate == 0.5
    assert fair.tokens_per_second == 36 / 10
    text = table([unfair, fair], 40.0)
    for word in ("flood", "alice", "bob", "81.8%", "36.4%", "80", "40"):
        assert word in text
    assert "82%" in verdict(unfair, fair, 40.0)
    assert "80 (beyond the bound of 40)" in verdict(unfair, fair, 40.0)
    assert "10 (within the bound of 40)" in verdict(unfair, fair, 40.0)
    write_json(tmp_path / "demo.json", 40.0, [(unfair, *unfair_run), (fair, *fair_run)])
    plot(tmp_path / "demo.png", 40.0, [(unfair, unfair_run[1]), (fair, fair_run[1])])
    assert (tmp_path / "demo.json").read_text().count('"at"') == 22
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_user_that_was_never_served_is_no_evidence() -> None:
    record, observation = run_with({"flood": 1.0})
    record.calls = [call for call in record.calls if call.user == "flood"]
    with pytest.raises(ValueError, match="alice was never served"):
        weigh("FCFS", record, observation)

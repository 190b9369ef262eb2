"""What the figures are read from: workloads by their published parameters, measures by hand-made runs; and how."""

import json
import pickle
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.outcomes import Outcome
from simulation.agreement import Agreement, Slowest
from simulation.call import Call
from simulation.reproduction import vtc_measured, vtc_real, vtc_tables
from simulation.reproduction.fairserve_workload import Users
from simulation.reproduction.item import Finding, Job, Report
from simulation.reproduction.measures import gap, mean_wait, received, response_times, service_difference
from simulation.reproduction.programs import Chat, Judge, Program, Programs, Sender, Tree
from simulation.reproduction.registry import ITEMS
from simulation.reproduction.run import Record, Run, Scenario
from simulation.reproduction.streams import Stream, Streams
from simulation.reproduction.vtc_measured import Distances, Pair
from simulation.reproduction.writing import table, write
from simulation.sources import SourceMissing, Sources
from simulation.spec import ClusterSpec, WorkerSpec


def record(client: str, arrival: float, first: float, ended: float, tokens: tuple[int, int] = (100, 50)) -> Record:
    return Record(
        number=1,
        client=client,
        app="default",
        interaction="",
        stage=0,
        last=False,
        arrival=arrival,
        admitted=arrival,
        first=first,
        ended=ended,
        input_tokens=tokens[0],
        cached_tokens=0,
        output_tokens=tokens[1],
        outcome=Outcome.COMPLETED,
    )


def made(*records: Record) -> Run:
    return Run(records, {}, max(r.ended for r in records), 0, None)


def test_a_client_receives_its_prompt_at_once_and_its_output_evenly() -> None:
    curve = received(made(record("a", 0.0, 2.0, 11.0)), "a")
    assert curve[1] == 0
    assert curve[2] == pytest.approx(110)
    assert curve[6] == pytest.approx(150)
    assert curve[-1] == pytest.approx(200)


def test_the_gap_is_between_the_most_and_the_least_served() -> None:
    assert gap({"a": [0, 5, 9], "b": [1, 1, 1], "c": [2, 2, 2]}) == [2, 4, 8]


def test_who_asks_for_little_does_not_count_as_short_of_service() -> None:
    """Client b gets all it asks for: the difference is 0 although a gets ten times as much."""
    busy = [record("a", float(t), t + 0.1, t + 0.9) for t in range(200)]
    quiet = [record("b", float(t), t + 0.1, t + 0.9) for t in range(0, 200, 10)]
    most, mean, _ = service_difference(made(*busy, *quiet))
    assert most == pytest.approx(0, abs=1e-9)
    starved = [record("b", t / 10, t / 10 + 150.0, t / 10 + 150.9) for t in range(20)]
    assert service_difference(made(*busy, *starved))[1] > mean


def test_the_service_difference_of_a_run_that_can_be_computed_by_hand() -> None:
    """Client a is served all the time, b's one request of 200 is asked for at 100 s and served from 400 to 500 s."""
    served = [record("a", float(t), float(t), t + 1.0) for t in range(600)]
    most, mean, _ = service_difference(made(*served, record("b", 100.0, 400.0, 500.0)))
    asked = [sum(start <= 100 <= start + 60 for start in (28.5 * n,)) * 200 / 60 for n in range(1, 20)]
    got = [2.0 * max(min(28.5 * n + 60, 500.0) - max(28.5 * n, 400.0), 0.0) / 60 for n in range(1, 20)]
    expected = [min(200.0 - g, abs(a - g)) for a, g in zip(asked, got, strict=True)]
    # a asks for 61 requests in a window that begins with an arrival, and gets 60 seconds' worth in each.
    most_of_a = 200.0 / 60
    assert most == pytest.approx(max(expected), abs=most_of_a)
    assert mean == pytest.approx(sum(expected) / 19, abs=most_of_a)


def test_response_times_are_of_those_that_arrived_near() -> None:
    records = [record("a", 5.0, 6.0, 7.0), record("a", 200.0, 210.0, 211.0)]
    found = dict(zip(*response_times(records, 240.0), strict=True))
    assert found[0.0] == 1.0
    assert 100.0 not in found
    assert found[200.0] == 10.0
    assert mean_wait(records) == 5.5


@pytest.mark.parametrize(
    ("program", "calls"), [(Tree(2), 30), (Tree(4), 340), (Judge(2), 4), (Judge(16), 18), (Chat(turns=4), 4)]
)
def test_a_program_makes_as_many_calls_as_the_paper_says(program: Program, calls: int) -> None:
    """Trees: DLPM Table 3. A judge has one more that puts its article into the cache, and one that merges."""
    run = Scenario(spec(), Programs((Sender("a", program, 2.0),), 1.0)).run()
    counts = Counter(record.interaction for record in run.records)
    assert counts
    assert set(counts.values()) == {calls}


def spec() -> ClusterSpec:
    return ClusterSpec(workers=2, worker=WorkerSpec(decode_run=10, token_budget=8192))


def test_a_branch_quotes_the_answer_that_it_continues() -> None:
    workload = Programs((Sender("a", Tree(2, height=2), 2.0),), 1.0).make()
    first = next(iter(workload.first()))
    first.outcome, first.ended_at = Outcome.COMPLETED, 9.0
    children: Sequence[Call] = list(workload.ended(first))
    assert len(children) == 2
    for child in children:
        assert child.arrival == 9.0
        assert list(child.prompt[: len(first.prompt)]) == list(first.prompt)
        assert len(child.prompt) > len(first.prompt) + first.output_tokens


def test_streams_send_at_their_rates() -> None:
    def times(stream: Stream) -> list[float]:
        return [call.arrival for call in Streams((stream,)).make().calls]

    even = times(Stream(client="a", per_minute=60, stop=100))
    assert even == [float(n) for n in range(1, 100)]
    silent = times(Stream(client="a", per_minute=60, stop=100, off_after=20))
    assert silent == [time for time in even if time // 20 % 2 == 0]
    rising = times(Stream(client="a", per_minute=6, rising_to=120, stop=600))
    assert sum(time < 300 for time in rising) < sum(time >= 300 for time in rising) / 2
    poisson = times(Stream(client="a", per_minute=60, stop=2000, poisson=True))
    assert len(poisson) == pytest.approx(2000, rel=0.1)
    assert poisson == times(Stream(client="a", per_minute=60, stop=2000, poisson=True))


def test_a_sender_keeps_to_its_rate_and_its_hours() -> None:
    sender = Sender("a", Tree(2), 3.0, variation=2.0, start=100.0, stop=900.0)
    times = list(sender.times(random.Random(1), 2000.0))
    assert 100.0 <= min(times) <= max(times) < 900.0
    assert len(times) == pytest.approx(2400, rel=0.15)


NEED_DATA = {item.name for item in (*vtc_measured.ITEMS, *vtc_real.ITEMS, *vtc_tables.ITEMS)}


@pytest.mark.parametrize("name", sorted(ITEMS.keys() - NEED_DATA))
def test_every_item_has_jobs_that_can_be_sent_to_a_process(name: str) -> None:
    jobs = ITEMS[name].study(Sources()).jobs
    assert jobs
    for job in jobs.values():
        assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize("name", sorted(NEED_DATA))
def test_an_item_whose_data_was_not_given_says_how_to_give_it(name: str) -> None:
    with pytest.raises(SourceMissing, match="FAIRLEAD_"):
        ITEMS[name].study(Sources())


PUBLISHED = ("FCFS__real", "VTC__real", "VTC_profile__real", "VTC__poisson")


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Names of measurements; nothing reads them."""
    (tmp_path / "MANIFEST.json").write_text(json.dumps([{"file": f"{name}.csv.gz"} for name in PUBLISHED]))
    return Sources(tmp_path)


def clients_of(job: Job) -> dict[str, str]:
    """With their applications."""
    match job:
        case Scenario(workload=Streams(streams=senders) | Programs(senders=senders)):
            return {sender.client: "default" for sender in senders}
        case Scenario(workload=Users(users=users)):
            return {user.name: user.app.name for user in users}
    return {f"client {number:02}": "default" for number in range(27)}


def stub(job: Job) -> Any:
    """A result as a job could have it: everybody is served again and again for 15 min, the next one twice as much."""
    if isinstance(job, Pair):
        return Distances(agreement(job.name), agreement(job.name))
    clients = clients_of(job)
    records = [
        replace(
            record(client, time, time + 1.0, time + 9.0, (100, 1 << number % 4)),
            app=app,
            interaction=f"{client} {time}",
            last=True,
        )
        for number, (client, app) in enumerate(clients.items())
        for time in map(float, range(0, 900, 20 if len(clients) < 100 else 150))
    ]
    actual = {client: {second: float(second) for second in range(900)} for client in clients}
    return replace(made(*records), actual=actual)


def ending(run: Run, seconds: float) -> Run:
    return replace(run, records=tuple(r for r in run.records if r.ended <= seconds), seconds=seconds)


def agreement(name: str, **changed: Any) -> Agreement:
    slow = Slowest("7", 3, 9.0, 8.0)
    exact = Agreement(
        name=name,
        total=0.0,
        curves={"7": 0.0, "8": 0.0},
        waits={"7": 0.0, "8": 0.0},
        requests={"7": 3, "8": 250},
        wait_overall=0.0,
        longest=True,
        slowest=(slow, slow),
        measured_seconds=700.0,
        simulated_seconds=700.0,
        refused=(0, 0),
    )
    return replace(exact, **changed)


def report_of(name: str, sources: Sources, results: Mapping[str, Any] | None = None) -> Report:
    study = ITEMS[name].study(sources)
    return study.read({key: stub(job) for key, job in study.jobs.items()} | dict(results or {}))


def finding(report: Report, claim: str) -> Finding:
    return next(finding for finding in report.findings if claim in finding.claim)


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_every_item_has_numbers_a_plot_and_a_rule_for_each_verdict(name: str, sources: Sources) -> None:
    report = report_of(name, sources)
    header, *rows = report.rows
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    assert report.charts
    for chart in report.charts:
        assert chart.lines
        for line in chart.lines:
            assert len(line.xs) == len(line.ys) > 0
            assert not chart.names or len(chart.names) == len(line.xs)
    for found in report.findings:
        assert bool(found.rule) == (found.agrees is not None), found.claim
        assert found.because or found.agrees is not False, found.claim
        assert (found.rule or found.claim) in table([found])


@pytest.mark.parametrize("name", ["fairserve-table4", "vtc-fig14"])
def test_bars_and_curves_are_drawn(name: str, sources: Sources, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path / "out", name, report_of(name, sources))
    assert (tmp_path / "out" / f"{name}.csv").read_text().count("\n") > 1
    drawn = (tmp_path / "out" / f"{name}.svg").read_text()
    assert "<svg" in drawn
    write(tmp_path / "again", name, report_of(name, sources))
    assert drawn == (tmp_path / "again" / f"{name}.svg").read_text()


@pytest.mark.parametrize(("preble", "agrees"), [(292.0, False), (500.0, True)])
def test_who_ends_before_doubleq_is_named_whoever_it_is(preble: float, agrees: bool, sources: Sources) -> None:
    jobs = ITEMS["dlpm-fig9"].study(sources).jobs
    ends = {"DoubleQ": 321.0, "RR + LPM": 359.0, "Preble": preble, "VTC": 367.0, "Preble, fixed": 485.0}
    runs = {name: ending(stub(jobs[name]), seconds) for name, seconds in ends.items()}
    found = finding(report_of("dlpm-fig9", sources, runs), "end of all programs")
    assert found.agrees is agrees
    assert ("Preble 292 s" in found.because) is not agrees


@pytest.mark.parametrize(
    ("late", "agrees"),
    [
        ({"RPM": 190, "VTC": 22, "FS (W)": 2, "FS (W+I)": 2}, True),
        ({"RPM": 197, "VTC": 136, "FS (W)": 122, "FS (W+I)": 122}, False),
        ({"RPM": 0, "VTC": 0, "FS (W)": 0, "FS (W+I)": 0}, False),
    ],
)
def test_a_right_order_alone_is_not_a_tenth_of_the_delays(late: dict[str, int], agrees: bool, sources: Sources) -> None:
    runs = {}
    for name, job in ITEMS["fairserve-fig8"].study(sources).jobs.items():
        waiting = {f"user {number:03}" for number in range(late[name])}
        records = stub(job).records
        records = [replace(r, admitted=r.arrival + 11.0 * (r.client in waiting)) for r in records]
        runs[name] = made(*records)
    assert finding(report_of("fairserve-fig8", sources, runs), "users delayed").agrees is agrees


def test_who_was_taken_for_the_longest_wait_is_named_with_its_requests_and_waits(sources: Sources) -> None:
    slowest = Slowest("7", 3, 91.5, 80.25), Slowest("8", 250, 88.0, 90.5)
    wrong = Distances(agreement("VTC__poisson", longest=False, slowest=slowest, waits={"7": 0.3, "8": 0.0}), None)
    report = report_of("vtc-measured", sources, {"VTC__poisson": wrong})
    found = finding(report, "predicted: who waits longest")
    assert found.agrees is False
    assert all(
        part in found.because for part in ("VTC__poisson: client 7 (3 requests)", "91.5", "client 8 (250)", "90.5")
    )
    found = finding(report, "predicted: mean first-token latency")
    assert found.agrees is False
    assert "client 7 of VTC__poisson, with 3, by 30%" in found.because
    assert finding(report, "fitted: who waits longest").agrees is True

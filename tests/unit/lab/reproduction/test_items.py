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

from cli.report import Chart, ChartLine
from cli.writing import write
from fairlead.outcomes import Outcome
from lab.reproduction import vtc_measured, vtc_real, vtc_tables
from lab.reproduction.agreement import Agreement, Slowest
from lab.reproduction.fairserve_workload import Users
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import all_backlogged, gap, gap_within, mean_wait, response_times, service_difference
from lab.reproduction.programs import Chat, Judge, Program, Programs, Sender, Tree
from lab.reproduction.published import Requests
from lab.reproduction.registry import ITEMS
from lab.reproduction.sources import Sources
from lab.reproduction.streams import Stream, Streams
from lab.reproduction.total_times import A10G, A100, Distances, left_out, uniform_rates
from lab.reproduction.vtc_measured import Pair
from lab.reproduction.writing import table
from simulation.call import SimulatedCall
from simulation.measures import received
from simulation.run import CallResult, Scenario, SimulationRun
from simulation.simulation_job import SimulationJob
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.traces import SourceMissing

pytestmark = pytest.mark.slow


def record(client: str, arrival: float, first: float, ended: float, tokens: tuple[int, int] = (100, 50)) -> CallResult:
    return CallResult(
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


def made(*records: CallResult) -> SimulationRun:
    return SimulationRun(records, {}, max(r.ended for r in records), 0, None)


def test_a_client_receives_its_prompt_at_once_and_its_output_evenly() -> None:
    curve = received(made(record("a", 0.0, 2.0, 11.0)), "a")
    assert curve[1] == 0
    assert curve[2] == pytest.approx(110)
    assert curve[6] == pytest.approx(150)
    assert curve[-1] == pytest.approx(200)


def test_the_gap_is_between_the_most_and_the_least_served() -> None:
    assert gap({"a": [0, 5, 9], "b": [1, 1, 1], "c": [2, 2, 2]}) == [2, 4, 8]


def test_only_where_all_wait_are_they_backlogged() -> None:
    first = [replace(record("a", start, stop, stop), admitted=stop) for start, stop in ((0.0, 5.5), (5.0, 20.0))]
    second = [replace(record("b", start, stop, stop), admitted=stop) for start, stop in ((2.5, 9.0), (11.0, 30.0))]
    assert all_backlogged(made(*first, *second)) == [(3, 9), (11, 20)]
    assert all_backlogged(made(*first, record("b", 0.0, 0.0, 20.0))) == []


def test_service_received_before_an_interval_does_not_count_in_it() -> None:
    curves = {"a": [0, 50, 50, 51, 56, 57], "b": [0, 0, 0, 3, 3, 3]}
    assert gap_within(curves, 0, 5) == 54
    assert gap_within(curves, 1, 5) == 54 - 48
    assert gap_within(curves, 2, 3) == 2


@pytest.mark.parametrize(("ahead", "agrees"), [(50_000, True), (150_000, False)])
def test_vtc_is_held_to_its_bound_only_while_both_wait(ahead: int, agrees: bool, sources: Sources) -> None:
    """Client 1 is served alone until client 2 comes at 100 s, and then gets `ahead` - 50,000 more than client 2."""
    waiting = {"1": (0.0, 590.0), "2": (100.0, 590.0)}
    queued = [
        replace(record(name, start, 600.0, 601.0, (1, 1)), admitted=stop) for name, (start, stop) in waiting.items()
    ]
    alone = record("1", 0.0, 50.0, 60.0, (100_000, 1))
    fair = made(alone, record("1", 0.0, 200.0, 500.0, (ahead, 1)), record("2", 0.0, 200.0, 500.0, (50_000, 1)), *queued)
    growing = [record("1", 0.0, float(time), time + 1.0, (5_000, 1)) for time in range(100, 590)]
    found = finding(report_of("vtc-fig7", sources, {"VTC": fair, "FCFS": made(*growing, *queued)}), "difference")
    assert found.agrees is agrees


def test_figure_8_is_run_as_the_authors_ran_it(sources: Sources) -> None:
    for job in ITEMS["vtc-fig8"].study(sources).jobs.values():
        assert isinstance(job, Scenario)
        assert isinstance(job.workload, Streams)
        lengths = [(s.per_minute, s.input_tokens, s.output_tokens) for s in job.workload.streams]
        assert lengths == [(480, 512, 32), (90, 32, 512)]


def test_table_6_judges_averages_only_on_the_authors_requests(sources: Sources) -> None:
    drawn, published = Sources(), sources
    for given, judged in ((drawn, None), (published, False)):
        report = report_of("vtc-table6", given)
        found = finding(report, "difference: VTC (oracle)")
        assert found.agrees is judged
        assert ("needs the folder of the measurements" in found.because) is (given is drawn)
        assert [chart.title for chart in report.charts] == ["maximum service difference", "average service difference"]
    workloads = {
        job.workload for job in ITEMS["vtc-table6"].study(published).jobs.values() if isinstance(job, Scenario)
    }
    assert {w.name for w in workloads if isinstance(w, Requests)} == set(MULTI)


def test_a_row_that_is_not_judged_says_why() -> None:
    with pytest.raises(ValueError, match="'c' is not judged and gives no reason"):
        Finding("c", "p", "o")
    assert "| c | p | o | not judged: w | - |" in table([Finding("c", "p", "o", because="w")])


def test_the_capacity_that_vtc_wasted_in_the_paper_is_stated_and_judged(sources: Sources) -> None:
    found = finding(report_of("fairserve-fig8", sources), "wasted tokens")
    assert "VTC 77,200" in found.paper
    assert "VTC 0" in found.ours
    assert found.agrees is False


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
    children: Sequence[SimulatedCall] = list(workload.ended(first))
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


MULTI = ("VTC__overload-multi", "VTC_oracle__overload-multi")  # behind Table 6
PUBLISHED = ("FCFS__real", "VTC__real", "VTC_profile__real", "VTC__poisson", *MULTI)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Names of measurements; nothing reads them."""
    (tmp_path / "MANIFEST.json").write_text(json.dumps([{"file": f"{name}.csv.gz"} for name in PUBLISHED]))
    return Sources(tmp_path)


def clients_of(job: SimulationJob) -> dict[str, str]:
    """With their applications."""
    match job:
        case Scenario(workload=Streams(streams=senders) | Programs(senders=senders)):
            return {sender.client: "default" for sender in senders}
        case Scenario(workload=Users(users=users)):
            return {user.name: user.app.name for user in users}
    return {f"client {number:02}": "default" for number in range(27)}


def stub(job: SimulationJob) -> Any:
    """A result as a job could have it: everybody is served again and again for 15 min, the next one twice as much."""
    if isinstance(job, Pair):
        return distances(agreement(job.name), agreement(job.name))
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


def ending(run: SimulationRun, seconds: float) -> SimulationRun:
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


def distances(
    measured: Agreement, jittered: Agreement | None = None, pool: str = A10G, context_seconds: float = 9.0
) -> Distances:
    return Distances(measured, jittered, pool, measured.name.rpartition("__")[2], context_seconds)


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
        assert all(line.label for line in chart.lines)
        assert chart.y not in ("", "service", "service/s"), "the unit is missing"
        assert chart.x or chart.names
    for found in report.findings:
        assert bool(found.rule) == (found.agrees is not None), found.claim
        assert found.because or found.agrees is not False, found.claim
        assert (found.rule or f"not judged: {found.because}") in table([found])


@pytest.mark.parametrize("name", ["fairserve-table4", "vtc-fig14"])
def test_bars_and_curves_are_drawn(name: str, sources: Sources, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path / "out", name, report_of(name, sources), "The paper, Figure 1")
    assert (tmp_path / "out" / f"{name}.csv").read_text().count("\n") > 1
    drawn = (tmp_path / "out" / f"{name}.svg").read_text()
    assert "<svg" in drawn
    assert "<!-- The paper, Figure 1 -->" in drawn
    write(tmp_path / "again", name, report_of(name, sources), "The paper, Figure 1")
    assert drawn == (tmp_path / "again" / f"{name}.svg").read_text()


def test_a_picture_says_large_numbers_in_full_and_how_many_lines_it_does_not_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = [ChartLine(f"client {n}", [0.0, 1.0], [0.0, 3_000_000.0 + n]) for n in range(27)]
    write(tmp_path, "many", Report([("n",)], [Chart("service", "seconds", "service units", lines)]))
    drawn = (tmp_path / "many.svg").read_text()
    assert "<!-- 3,000,000 -->" in drawn
    assert "1e6" not in drawn
    assert "<!-- service (27 lines, named in the CSV file) -->" in drawn


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
    wrong = distances(agreement("VTC__poisson", longest=False, slowest=slowest, waits={"7": 0.3, "8": 0.0}))
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


def timed(name: str, measured: float, simulated: float, pool: str, context: float = 1.0) -> Distances:
    return distances(agreement(name, measured_seconds=measured, simulated_seconds=simulated), None, pool, context)


def test_a_run_is_left_out_of_the_fit_that_it_is_held_against() -> None:
    """Context costs a tenth more than assumed in all but one run, which is missed by just that."""
    right = [timed(f"{n}", 100.0, 100.0 - n / 10, A100, float(n)) for n in (30, 40, 50)]
    [found] = left_out([*right, timed("odd", 100.0, 100.0, A100, 20.0), timed("other", 1.0, 9.0, A10G)])
    assert found.ours.endswith("+2.0%; worst odd")
    assert found.agrees is True
    [found] = left_out([*right, timed("odd", 100.0, 104.0, A100, 20.0)])
    assert found.agrees is False
    assert "odd is missed by +6.0%" in found.because
    assert left_out(right[:2]) == []


@pytest.mark.parametrize(("simulated", "agrees"), [(103.0, True), (105.0, False)])
def test_a_prediction_is_as_near_as_measurements_of_the_same_requests(simulated: float, agrees: bool) -> None:
    runs = [timed("FCFS__overload", 104.0, 104.0, A10G), timed("VTC__overload", 100.0, simulated, A10G)]
    [found] = uniform_rates([*runs, timed("VTC__real", 100.0, 150.0, A10G), timed("VTC__x", 1.0, 9.0, A100)])
    assert "up to 4.0% longer" in found.paper
    assert found.agrees is agrees
    assert "VTC__overload" in found.because

"""What the figures are read from: workloads by their published parameters, measures by hand-made runs."""

import pickle
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from fairlead.outcomes import Outcome
from simulation.call import Call
from simulation.reproduction import vtc_measured, vtc_real, vtc_tables
from simulation.reproduction.measures import gap, mean_wait, received, response_times, service_difference
from simulation.reproduction.programs import Chat, Judge, Program, Programs, Sender, Tree
from simulation.reproduction.registry import ITEMS
from simulation.reproduction.run import Record, Run, Scenario
from simulation.reproduction.streams import Stream, Streams
from simulation.sources import SourceMissing, Sources
from simulation.spec import ClusterSpec, WorkerSpec


def record(client: str, arrival: float, first: float, ended: float, tokens: tuple[int, int] = (100, 50)) -> Record:
    return Record(
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

"""Recorded requests come again when what they waited for has ended, and share what they shared."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.call import SimulatedCall
from simulation.prompts import digests_of
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import PrefixBlocks, TraceRow


def row(arrival: float, after: tuple[int, ...] = (), interaction: str = "i", think: float | None = None) -> TraceRow:
    return TraceRow(
        arrival=arrival,
        client="a",
        app="x",
        input_tokens=20,
        output_tokens=2,
        interaction=interaction,
        think=think,
        after=after,
    )


def finish(call: SimulatedCall, at: float) -> SimulatedCall:
    call.ended_at = at
    return call


def test_blocks_are_shared_exactly_as_far_as_they_are_the_same() -> None:
    def sized(tokens: int, *ids: range) -> TraceRow:
        blocks = tuple(PrefixBlocks("m", run) for run in ids)
        return TraceRow(
            arrival=0.0, client="", app="m", input_tokens=tokens, output_tokens=5, blocks=blocks, block_tokens=512
        )

    rows = [sized(1100, range(7, 9)), sized(1100, range(7, 8), range(9, 10)), sized(600, range(8, 9))]
    first, second, third = (call.prompt for call in TraceReplay(rows).first())
    assert first[:512] == second[:512]
    assert first[512:1024] != second[512:1024]
    assert third[:512] == first[512:1024], "block 8 is block 8 wherever it stands"
    assert [len(first), len(second), len(third)] == [1100, 1100, 600]
    assert first[1024:] != second[1024:], "what is beyond the blocks is nobody else's"


@pytest.mark.parametrize(
    ("think", "ended", "comes"),
    [
        (None, 10.0, 120.0),  # its user came back after two minutes
        (None, 200.0, 200.0),  # but nobody goes on before the answer
        (3.0, 10.0, 13.0),  # a measured time to think is what it takes, however soon the answer comes
        (3.0, 200.0, 203.0),
    ],
)
def test_the_next_call_keeps_its_time_or_its_time_to_think(think: float | None, ended: float, comes: float) -> None:
    replay = TraceReplay([row(0.0), row(1.0, interaction=""), row(120.0, (0,), think=think)])
    first, alone = replay.first()
    assert (first.interaction, first.stage, first.last) == ("i", 0, False)
    assert alone.last
    [following] = replay.ended(finish(first, ended))
    assert (following.arrival, following.stage, following.last) == (comes, 1, True)
    assert not list(replay.ended(finish(alone, 11.0)))
    assert not list(replay.ended(finish(following, 300.0)))


def test_a_call_waits_for_all_agents_that_were_launched_and_thinks_from_the_answer_it_continues() -> None:
    replay = TraceReplay(
        [row(0.0), row(1.0, (0,), think=0.0), row(1.0, (0,), think=2.0), row(9.0, (0, 1, 2), think=5.0)]
    )
    [main] = replay.first()
    one, other = replay.ended(finish(main, 10.0))
    assert (one.arrival, other.arrival) == (10.0, 12.0)
    assert not one.last
    assert not list(replay.ended(finish(other, 12.5)))
    [following] = replay.ended(finish(one, 40.0))
    assert following.arrival == 40.0, "15 s was the end of its thinking, but not of its agents"
    assert following.last


@st.composite
def interactions(draw: st.DrawFn) -> list[TraceRow]:
    rows: list[TraceRow] = []
    for position in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.integers(0, position - 1), max_size=3, unique=True)) if position else []
        think = draw(st.none() | st.floats(0, 9))
        rows.append(row(draw(st.floats(0, 50)), tuple(after), think=think if after else None))
    return rows


@given(interactions(), st.lists(st.floats(0.1, 30), min_size=12, max_size=12))
def test_each_comes_once_and_never_before_what_it_waited_for(rows: list[TraceRow], latencies: list[float]) -> None:
    replay = TraceReplay(rows)
    ends: dict[int, float] = {}
    open_calls: list[SimulatedCall] = list(replay.first())
    arrivals: dict[int, float] = {}
    while open_calls:
        call = min(open_calls, key=lambda call: (call.arrival + latencies[call.number - 1], call.number))
        open_calls.remove(call)
        position = call.number - 1
        assert position not in ends
        ends[position], arrivals[position] = call.arrival + latencies[position], call.arrival
        assert len(ends) == len(rows) or not call.last
        open_calls += replay.ended(finish(call, ends[position]))
    assert arrivals == {position: expected(one, ends) for position, one in enumerate(rows)}


def expected(one: TraceRow, ends: dict[int, float]) -> float:
    if not one.after:
        return one.arrival
    last = max(ends[before] for before in one.after)
    return max(one.arrival, last) if one.think is None else max(last, ends[one.after[0]] + one.think)


def test_long_outputs_are_whole_and_never_taken_for_another() -> None:
    outputs = [
        SimulatedCall(number=n, client="a", prompt=[5] * 16, output_tokens=40_000, arrival=0.0) for n in (1, 2, 3)
    ]
    chains = [digests_of([*call.prompt, *call.answer], 16) for call in outputs]
    assert {len(chain) for chain in chains} == {1 + 40_000 // 16}
    assert distinct(chain[1:] for chain in chains)
    last = SimulatedCall(number=2**31, client="a", prompt=[5], output_tokens=1 << 24, arrival=0.0)
    assert 0 < last.answer[0] < last.answer[-1] < 1 << 31, "prompts have the numbers above"


def distinct(chains: Iterable[list[int]]) -> bool:
    digests = [digest for chain in chains for digest in chain]
    return len(set(digests)) == len(digests)

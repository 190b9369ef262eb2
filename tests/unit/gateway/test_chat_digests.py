"""Digests of chats against the chats themselves."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.continued_chats import Turn, chat_digests

KEY = b"of a cluster"
TURNS = st.lists(
    st.builds(Turn, st.sampled_from(["user", "assistant", "system", "tool"]), st.sampled_from(["", "a", "b", "ab"])),
    max_size=6,
)


def counting(turns: list[Turn]) -> list[Turn]:
    return [turn for turn in turns if turn.role != "system"]


def asked(turns: list[Turn]) -> list[Turn]:
    """What is to be answered."""
    turns = counting(turns)
    while turns and turns[-1].role == "assistant":
        turns = turns[:-1]
    return turns


def through(turns: list[Turn]) -> list[Turn]:
    """The history up to the end of the last answer."""
    turns = asked(turns)
    while turns and turns[-1].role != "assistant":
        turns = turns[:-1]
    return turns


@given(TURNS, TURNS)
def test_digests_are_equal_where_the_turns_are(one: list[Turn], other: list[Turn]) -> None:
    mine, others = chat_digests(one, KEY), chat_digests(other, KEY)
    assert (mine.asked == others.asked) == (asked(one) == asked(other))
    assert (mine.through == others.through) == (through(one) == through(other))
    assert (mine.answered == others.asked) == (bool(through(one)) and asked(through(one)) == asked(other))
    assert bool(mine.answered) == bool(mine.through) == bool(through(one))


def test_other_clusters_have_other_digests() -> None:
    turns = [Turn("user", "a")]
    assert chat_digests(turns, KEY).asked != chat_digests(turns, b"of another").asked

"""Stop strings, fed in any pieces, cut the output where the whole text would be cut."""

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.output_text import StopStrings

PIECES = st.lists(st.text("ab\n", max_size=5), max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3).map(tuple)


def cut(pieces: list[str], stops: tuple[str, ...]) -> str:
    """The naive way: after each piece, look for the earliest stop string in the whole text so far."""
    text = ""
    for piece in pieces:
        text += piece
        found = [text.find(stop) for stop in stops if stop in text]
        if found:
            return text[: min(found)]
    return text


@given(pieces=PIECES, stops=STOPS)
def test_any_pieces_are_cut_as_the_whole_text(pieces: list[str], stops: tuple[str, ...]) -> None:
    matcher, out, stop = StopStrings(stops), "", ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        out += text
        if stop:
            assert stop in stops
            assert "".join(pieces).startswith(out + stop), "it is the one that follows"
            break
    assert out + ("" if stop else matcher.flush()) == cut(pieces, stops)


@given(pieces=PIECES, stops=STOPS)
def test_text_is_held_only_while_it_may_become_a_stop_string(pieces: list[str], stops: tuple[str, ...]) -> None:
    matcher, given_on, text = StopStrings(stops), 0, ""
    for piece in pieces:
        text += piece
        released, stopped = matcher.push(piece)
        if stopped:
            return
        given_on += len(released)
        held = text[given_on:]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_across_pieces() -> None:
    matcher = StopStrings(("END",))
    assert [matcher.push(piece) for piece in ("answer E", "N", "Dmore")] == [
        ("answer ", ""),
        ("", ""),
        ("", "END"),
    ]


@given(pieces=PIECES, stops=STOPS, exempt=st.integers(0, 4))
def test_no_stop_string_is_found_in_the_text_of_the_first_tokens(
    pieces: list[str], stops: tuple[str, ...], exempt: int
) -> None:
    matcher, out, stop = StopStrings(stops, exempt), "", ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        out += text
        if stop:
            break
    assert out + ("" if stop else matcher.flush()) == "".join(pieces[:exempt]) + cut(pieces[exempt:], stops)

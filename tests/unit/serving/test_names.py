"""One spelling per name, and no name that looks like another because something in it cannot be seen."""

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving.names import MAX_NAME, MAX_SPELLING, normalized

# Mostly of what a name may hold: few are looked for in vain.
VISIBLE = st.characters(categories=["L", "M", "N", "P", "S"], include_characters=" \t\u00a0")


def accepted(name: str) -> str:
    """The spelling of a name that has one; Hypothesis looks for another where it has none."""
    try:
        return normalized(name)
    except ValueError:
        assume(False)
        raise


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("around", ["", " ", "\t", "\u00a0", "\u2003 "])
def test_spellings_of_one_name_are_one_name(form: str, around: str) -> None:
    spelled = unicodedata.normalize(form, "Zoë Müller")  # type: ignore[arg-type]
    assert normalized(around + spelled + around) == "Zo\u00eb M\u00fcller"


@given(st.text(VISIBLE, min_size=1, max_size=MAX_NAME + 5))
def test_equivalent_spellings_agree_and_a_spelling_is_its_own(name: str) -> None:
    spelled = accepted(name)
    assert normalized(spelled) == spelled
    for other in (f" {name} ", unicodedata.normalize("NFD", name), unicodedata.normalize("NFC", name)):
        assert normalized(other) == spelled


@given(
    st.text(VISIBLE, min_size=1, max_size=20), st.integers(0, 20), st.characters(categories=["Cc", "Cf", "Zl", "Zp"])
)
def test_a_character_that_is_not_seen_never_makes_another_name(name: str, position: int, unseen: str) -> None:
    spelled = accepted(name)
    hidden = spelled[:position] + unseen + spelled[position:]
    if hidden.strip() == spelled:
        assert normalized(hidden) == spelled
    else:
        with pytest.raises(ValueError, match=r"^[\x20-\x7e]+$"):
            normalized(hidden)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bo\x00b", r"'bo\x00b'"),
        ("bo\nb", r"'bo\nb'"),
        ("bob\u200b", r"'bob\u200b'"),
        ("bo\u200db", r"'bo\u200db'"),
        ("bob\u202e", r"'bob\u202e'"),
        ("\u2067bob", r"'\u2067bob'"),
        ("bo\u00adb", r"'bo\xadb'"),
        ("\ufeffbob", r"'\ufeffbob'"),
        ("bob\u3164", r"'bob\u3164'"),
        ("bob\ufe0f", r"'bob\ufe0f'"),
        ("bob\U000e0100", r"'bob\U000e0100'"),
        ("b\u034fob", r"'b\u034fob'"),
        ("bob\u00a0jones", r"'bob\xa0jones'"),
        ("\ud800", r"'\ud800'"),
        ("Jos\ufffd", r"'Jos\ufffd'"),
        (" \t ", r"' \t '"),
        ("x" * (MAX_NAME + 1), "at most 128 characters, got 129"),
    ],
)
def test_ambiguous_names_are_refused_and_shown_escaped(name: str, shown: str) -> None:
    with pytest.raises(ValueError, match="must") as raised:
        normalized(name)
    assert shown in str(raised.value)
    assert str(raised.value).isascii()


@pytest.mark.parametrize("name", ["bob", "bob jones", "acme:eu-west/7", "李雷", "Ωμέγα", "नमस्ते", "a" * MAX_NAME])
def test_ordinary_names_are_kept_as_they_are(name: str) -> None:
    assert normalized(name) == name


def test_a_spelling_that_is_far_too_long_is_not_looked_at() -> None:
    """Unicode's order of accents takes the square of their number."""
    assert normalized("ann".rjust(MAX_SPELLING)) == "ann"
    with pytest.raises(ValueError, match=f"must be at most {MAX_NAME} characters, got {MAX_SPELLING + 1}"):
        normalized("ann".rjust(MAX_SPELLING + 1))
    with pytest.raises(ValueError, match="got 1000001"):
        normalized("a" + "\u0301\u0323" * 500_000)

"""Text that the engine decodes, with stop strings that are found here."""

from local_worker.core.output_text import EngineText


def test_text_is_released_with_its_tokens_up_to_a_stop_string() -> None:
    text = EngineText(("END",))
    text.decoded("so ")
    text.decoded("far E")
    assert text.push([1, 2]) == ("so far ", "")
    assert text.push([3]) == ("", "")
    text.decoded("ND and more")
    assert text.push([4]) == ("", "END")


def test_text_held_back_by_an_earlier_attempt_is_released_once() -> None:
    text = EngineText(("END",))
    text.resume("so far EN")
    text.decoded("OUGH E")
    assert text.push([1]) == ("ENOUGH ", "")
    assert text.rest() == "E"
    assert text.rest() == ""


def test_a_stop_string_may_begin_in_an_earlier_attempt() -> None:
    text = EngineText(("END",))
    text.resume("so far EN")
    text.decoded("D")
    assert text.push([1]) == ("", "END")


def test_the_bytes_of_tokens_are_unknown() -> None:
    assert EngineText(()).token_bytes(65) == b""


def test_the_first_tokens_of_an_engine_are_not_looked_at_either() -> None:
    text = EngineText((" ",), 3)
    text.resume("earlier")
    text.decoded(" a b")
    assert text.push([1, 2, 3]) == (" a b", "")
    text.decoded("c d")
    assert text.push([4]) == ("c", " ")

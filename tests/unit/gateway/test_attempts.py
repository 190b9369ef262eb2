"""A request is placed again until three attempts in a row have brought nothing."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.call import MAX_ATTEMPTS, Attempts
from gateway.core.stall_detector import AFTERMATH_SECONDS, BEAT_SECONDS, LATE_SECONDS, StallDetector

SAYS = st.lists(st.sampled_from(["entered", "advanced"]), max_size=3)


@given(st.lists(SAYS, min_size=1, max_size=12))
def test_given_up_after_three_attempts_without_a_token(lives: list[list[str]]) -> None:
    """`lives`: what each attempt's worker says before it is lost."""
    attempts = Attempts()
    for number, says in enumerate(lives, start=1):
        attempts.begin()
        assert not attempts.started
        attempts.tried.append(f"worker-{number}")
        for event in says:
            if event == "entered":
                attempts.started = True
            else:
                attempts.advanced()
        attempts.check_invariants()
        assert (attempts.number, attempts.started) == (number, "entered" in says)
        assert attempts.charged == any("advanced" in earlier for earlier in lives[:number])
        barren = [not {"advanced"} & set(earlier) for earlier in lives[max(0, number - MAX_ATTEMPTS) : number]]
        assert attempts.exhausted == (len(barren) == MAX_ATTEMPTS and all(barren))
        if attempts.exhausted:
            break
    assert attempts.tried == [f"worker-{number}" for number in range(1, attempts.number + 1)]


def test_losses_while_the_gateway_was_stopped_count_once_for_each_worker() -> None:
    attempts = Attempts()
    for worker in ("a", "b", "c", "a", "b"):
        attempts.begin()
        attempts.tried.append(worker)
        attempts.excuse()
        attempts.check_invariants()
    assert attempts.tried == ["a", "b"]
    assert not attempts.exhausted
    attempts.begin()
    attempts.tried.append("c")
    attempts.excuse()
    assert attempts.exhausted


def test_an_excuse_takes_back_one_attempt_and_none_before_the_last_token() -> None:
    for before, left in ((["token"], 3), (["lost", "lost"], 2), (["token", "lost"], 3)):
        attempts = Attempts()
        for number, fate in enumerate(before):
            attempts.begin()
            attempts.tried.append(f"earlier-{number}")
            if fate == "token":
                attempts.advanced()
        attempts.excuse()
        attempts.check_invariants()
        exhausted = []
        for number in range(left):
            attempts.begin()
            attempts.tried.append(f"later-{number}")
            exhausted.append(attempts.exhausted)
        assert exhausted == [False] * (left - 1) + [True]


def test_an_instance_is_excused_once_wherever_others_were_tried_before() -> None:
    attempts = Attempts()
    for instance in ("b", "a", "b"):
        attempts.begin()
        attempts.tried.append(instance)
        if instance == "b":
            attempts.excuse()
    assert attempts.tried == ["a", "b"]
    attempts.check_invariants()


PAUSES = st.sampled_from([BEAT_SECONDS, LATE_SECONDS, 2 * LATE_SECONDS]) | st.floats(0, 3 * AFTERMATH_SECONDS)


@given(st.lists(PAUSES, max_size=30), PAUSES)
def test_absence_explains_what_is_lost_in_its_aftermath(pauses: list[float], after: float) -> None:
    """Against all beats so far; `after`: how long after the last one something is lost."""
    beats = list(itertools.accumulate(pauses, initial=1024.0))
    absence = StallDetector(beats[0])
    for beat in beats[1:]:
        absence.beat(beat)
    now = beats[-1] + after
    late = [end for begin, end in itertools.pairwise(beats) if end - begin > LATE_SECONDS]
    expected = now - beats[-1] > LATE_SECONDS or any(now < end + AFTERMATH_SECONDS for end in late)
    assert absence.explains(now) == expected

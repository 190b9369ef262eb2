"""A request is placed again until three attempts in a row have brought nothing."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.attempts import MAX_ATTEMPTS, Attempts

SAYS = st.lists(st.sampled_from(["entered", "advanced"]), max_size=3)


@given(st.lists(SAYS, min_size=1, max_size=12))
def test_given_up_after_three_attempts_without_a_token(lives: list[list[str]]) -> None:
    """`lives`: what each attempt's worker says before it is lost."""
    attempts = Attempts()
    for number, says in enumerate(lives, start=1):
        attempts.begin()
        assert not attempts.started
        attempts.placed(f"worker-{number}")
        for event in says:
            getattr(attempts, event)()
        attempts.check_invariants()
        assert (attempts.number, attempts.started) == (number, "entered" in says)
        assert attempts.charged == any("entered" in earlier for earlier in lives[:number])
        barren = [not {"advanced"} & set(earlier) for earlier in lives[max(0, number - MAX_ATTEMPTS) : number]]
        assert attempts.exhausted == (len(barren) == MAX_ATTEMPTS and all(barren))
        if attempts.exhausted:
            break
    assert attempts.tried == [f"worker-{number}" for number in range(1, attempts.number + 1)]

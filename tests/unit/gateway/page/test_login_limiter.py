"""Wrong keys are counted by address, for a minute each."""

from gateway.page.login_limiter import MOST_ADDRESSES, MOST_GUESSES, WINDOW_SECONDS, LoginLimiter


def test_an_address_waits_for_the_end_of_its_window() -> None:
    limiter = LoginLimiter()
    assert [limiter.failed("a", 10.0 + number) for number in range(MOST_GUESSES)] == [True] + [False] * 9
    assert limiter.wait("a", 30.0) == WINDOW_SECONDS - 20.0
    assert limiter.wait("b", 30.0) == 0.0, "others do not"
    assert limiter.wait("a", 10.0 + WINDOW_SECONDS) == 0.0
    assert limiter.failed("a", 10.0 + WINDOW_SECONDS), "a window begins"
    assert limiter.wait("a", 11.0 + WINDOW_SECONDS) == 0.0


def test_the_oldest_windows_are_forgotten() -> None:
    limiter = LoginLimiter()
    for _ in range(MOST_GUESSES):
        limiter.failed("first", 0.0)
    for number in range(MOST_ADDRESSES):
        assert limiter.wait("first", 1.0) > 0
        limiter.failed(f"other {number}", 1.0)
    assert limiter.wait("first", 1.0) == 0.0

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.core.leased_quota import LeasedQuota, LeaseReply
from throttler.core.windows import FixedWindow, LimitStatus, LocalQuota, QuotaAccount, SlidingWindow

PAUSES = st.sampled_from((0, 1, 10, 20, 25))  # seconds, which often add up to the length of a window
ARRIVALS = st.lists(st.tuples(st.sampled_from("abc"), PAUSES), max_size=60)


@given(ARRIVALS, st.integers(1, 5))
def test_agrees_with_counting_every_arrival(arrivals: list[tuple[str, int]], limit: int) -> None:
    window, history, now = SlidingWindow(60.0, LocalQuota()), list[tuple[str, int]](), 0
    for key, pause in arrivals:
        now += pause
        history.append((key, now))
        recent = [when for name, when in history if name == key and when > now - 60]
        fits = window.fits(QuotaAccount(key, limit), float(now))
        wait = window.arrived(QuotaAccount(key, limit), float(now))
        window.check_invariants()
        assert fits == (wait == 0)
        assert (wait > 0) == (len(recent) > limit)
        last = {who: when for who, when in history if when > now - 60}
        latest = sorted(last, key=lambda who: max(place for place, (other, _) in enumerate(history) if other == who))
        assert window.accounts() == [QuotaAccount(who, limit) for who in latest]
        exhausted = {}  # accounts whose next arrival would not fit, and from when on it would
        for name in "abc":
            times = [when for who, when in history if who == name and when > now - 60]
            if len(times) >= limit:
                exhausted[QuotaAccount(name, limit)] = times[-limit] + 60 - now
        assert window.exhausted(float(now)) == exhausted
        for name in "abc":  # when none of its arrivals is left, and not before
            status = window.status(QuotaAccount(name, limit), float(now))
            count = len([when for who, when in history if who == name and when > now - 60])
            reset = max(0, last.get(name, -60) + 60 - now)
            assert status == LimitStatus(limit, max(0, limit - count), reset)
        if wait:  # after `wait` there is room for one more, half a second sooner there is not
            assert len([when for when in recent if when > now + wait - 60]) < limit
            assert len([when for when in recent if when > now + wait - 0.5 - 60]) >= limit


def test_forgets_idle_keys_and_bounds_a_flooder() -> None:
    window = SlidingWindow(60.0, LocalQuota())
    for number in range(1000):
        window.arrived(QuotaAccount("flooder", 10), number / 1000)
        window.arrived(QuotaAccount(f"visitor {number}", 10), number / 1000)
    window.check_invariants()  # at most `limit` times each
    assert len(window) == 1001
    window.arrived(QuotaAccount("late", 10), 61.0)
    assert len(window) == 1


def test_a_key_is_forgotten_as_soon_as_its_last_arrival_has_left_the_window() -> None:
    window = SlidingWindow(60.0, LocalQuota())
    window.arrived(QuotaAccount("a", 10), 0.0)
    window.arrived(QuotaAccount("b", 10), 60.0)
    assert [account.key for account in window.accounts()] == ["b"]


@given(ARRIVALS, st.integers(1, 5))
def test_fixed_windows_begin_at_multiples_of_their_length(arrivals: list[tuple[str, int]], limit: int) -> None:
    window, history, now = FixedWindow(60.0, LocalQuota()), list[tuple[str, int]](), 0
    for key, pause in arrivals:
        now += pause
        fits = window.fits(QuotaAccount(key, limit), float(now))
        wait = window.arrived(QuotaAccount(key, limit), float(now))
        window.check_invariants()
        assert fits == (wait == 0)
        history.append((key, now))
        left = 60 - now % 60
        for name in "abc":
            count = sum(who == name and when // 60 == now // 60 for who, when in history)
            assert window.used(name, float(now)) == min(count, limit)
            status = window.status(QuotaAccount(name, limit), float(now))
            assert status == LimitStatus(limit, max(0, limit - count), left if count else 0)
        count = sum(who == key and when // 60 == now // 60 for who, when in history)
        assert wait == (left if count > limit else 0)


def test_a_sliding_window_tells_the_quota_of_each_arrival() -> None:
    quota, account = LeasedQuota(60.0), QuotaAccount("a", 8)
    quota.restore(-1000.0)  # may use half of the limit without a request, and reports the other half at once
    window = SlidingWindow(60.0, quota)
    due = []
    for _ in range(8):
        window.arrived(account, 0.0)
        due.append(bool(quota.take_due()))
    assert due == [False] * 7 + [True]


def test_a_fixed_window_tells_the_quota_of_each_arrival_that_it_counts() -> None:
    quota, account = LeasedQuota(60.0), QuotaAccount("a", 8)
    quota.restore(-1000.0)
    quota.answered(quota.ask(account, 0, 1, 0.0), LeaseReply(2, recalled=False), 0.0, 0.0)  # half used, it is renewed
    window = FixedWindow(60.0, quota)
    due = []
    for now in (10.0, 31.0, 32.0):
        window.arrived(account, now)
        due.append(bool(quota.take_due()))
    assert (due, window.used("a", 32.0)) == ([False, True, False], 2), "the third is refused"


class RecordingQuota(LocalQuota):
    """The quota of a single gateway, with the counts that it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        self.told.append((account.key, used))


@pytest.mark.parametrize("kind", [SlidingWindow, FixedWindow])
def test_the_quota_is_told_how_many_arrivals_the_window_has(kind: type[SlidingWindow | FixedWindow]) -> None:
    quota = RecordingQuota()
    window = kind(60.0, quota)
    for key in "aab":
        window.arrived(QuotaAccount(key, 8), 0.0)
    assert quota.told == [("a", 1), ("a", 2), ("b", 1)]


def test_a_call_refused_without_any_allowance_waits_for_a_part_of_the_window() -> None:
    """A lease may bring an allowance at any time, so the caller is not sent away for a whole window."""
    quota = LeasedQuota(60.0)
    quota.restore(0.0)
    window, account = SlidingWindow(60.0, quota), QuotaAccount("a", 8)
    assert not window.fits(account, 1.0)
    assert 0 < window.arrived(account, 1.0) < 60.0 / 2


def test_a_limit_that_changes_keeps_the_newest_arrivals() -> None:
    window = SlidingWindow(60.0, LocalQuota())
    for now in (0.0, 1.0, 2.0):
        window.arrived(QuotaAccount("a", 3), now)
    assert window.arrived(QuotaAccount("a", 2), 3.0) == 59.0, "the arrival at 2 s has left the window after 59 s"
    assert window.arrived(QuotaAccount("a", 4), 4.0) == 0.0
    assert window.accounts() == [QuotaAccount("a", 4)]
    assert window.used("a", 4.0) == 3, "older arrivals were dropped when the limit was 2"


def test_a_fixed_window_tells_which_limits_are_used_up_until_its_end() -> None:
    window = FixedWindow(60.0, LocalQuota())
    for now in (130.0, 131.0):
        window.arrived(QuotaAccount("a", 2), now)
    window.arrived(QuotaAccount("b", 2), 131.0)
    assert window.exhausted(140.0) == {QuotaAccount("a", 2): 40.0}
    assert window.exhausted(180.0) == {}


def test_a_limit_is_used_up_until_its_oldest_arrival_leaves_the_window() -> None:
    window, account = SlidingWindow(60.0, LocalQuota()), QuotaAccount("a", 2)
    for now in (0.0, 30.0):
        window.arrived(account, now)
    assert window.exhausted(59.0) == {account: 1.0}
    assert window.exhausted(60.0) == {}
    assert window.used("a", 59.0) == 2
    assert window.used("a", 60.0) == 1

"""A gateway follows the highest epoch that it has seen, beside a naive model that reads the whole history."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.followed_leader import NO_EPOCH, FollowedLeader, ReportKind

REPORTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=12)


def leader(history: list[tuple[str, int]]) -> str | None:
    """The scheduler that was the first to report the highest epoch so far since its predecessor was lost."""
    followed, highest = None, NO_EPOCH
    for scheduler, epoch in history:
        if scheduler == followed and epoch < highest:
            followed = None
        elif epoch and (epoch > highest or (epoch == highest and followed is None)):
            followed, highest = scheduler, epoch
    return followed


@given(REPORTS)
def test_the_highest_epoch_is_followed(reports: list[tuple[str, int]]) -> None:
    schedulers: FollowedLeader[str] = FollowedLeader()
    for number, (scheduler, epoch) in enumerate(reports, start=1):
        before = leader(reports[: number - 1])
        kind = schedulers.reported(scheduler, epoch)
        schedulers.check_invariants()
        assert schedulers.leader == leader(reports[:number])
        assert schedulers.epoch == max(epoch for _, epoch in reports[:number])
        if kind is ReportKind.FROM_NEW_LEADER:
            assert schedulers.leader == scheduler
        else:
            assert (kind is ReportKind.FROM_LEADER) == (scheduler == schedulers.leader)
            assert (kind is ReportKind.LEADER_LOST) == (scheduler == before != schedulers.leader)


def test_a_leader_that_takes_a_new_term_is_followed_anew() -> None:
    schedulers: FollowedLeader[str] = FollowedLeader()
    assert [schedulers.reported("a", epoch) for epoch in (1, 1, 2, 2)] == [
        ReportKind.FROM_NEW_LEADER,
        ReportKind.FROM_LEADER,
        ReportKind.FROM_NEW_LEADER,
        ReportKind.FROM_LEADER,
    ]


def test_a_conflict_is_said_once_for_each_change() -> None:
    schedulers: FollowedLeader[str] = FollowedLeader()
    reports = [("a", 1), ("b", 1), ("b", 1), ("c", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [schedulers.reported(*report) for report in reports] == [
        ReportKind.FROM_NEW_LEADER,
        ReportKind.NEW_CONFLICT,
        ReportKind.IGNORED,
        ReportKind.NEW_CONFLICT,
        ReportKind.NEW_CONFLICT,
        ReportKind.FROM_NEW_LEADER,
        ReportKind.NEW_CONFLICT,
    ]

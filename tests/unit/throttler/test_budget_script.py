"""The script that runs inside Redis answers as the ledger of budgets in Python does."""

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.redis_server import RedisServer
from throttler import budget_script as script
from throttler.core.budget import BudgetAccount, SlidingSpan
from throttler.core.budget_ledger import PARTS, BudgetEntry, BudgetLedger, BudgetRequest

PROCESS = st.sampled_from("abc")
ACCOUNT = st.sampled_from("xy")
BIG = 10**15  # amounts of money are in billionths
ENTRY = st.builds(
    BudgetEntry,
    st.integers(1, 9),
    st.integers(0, 12),
    st.sampled_from([0, 0, 5, BIG]),
    st.dictionaries(st.integers(0, 12), st.sampled_from([0, 1, 30, BIG]), max_size=4),
)
ASK = st.tuples(PROCESS, ACCOUNT, ENTRY, st.integers(0, 12), st.sampled_from([0, 1, 40, 2 * BIG]))
RESTORE = st.tuples(PROCESS, ACCOUNT, ENTRY)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.client
    server.kill()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.one_of(ASK, RESTORE), max_size=20), st.sampled_from([100, 5 * BIG]))
def test_the_script_agrees_with_the_ledger(link: redis.Redis, steps: list[tuple[object, ...]], limit: int) -> None:
    link.flushall()
    epoch, settles = link.eval(script.BEAT, 1, script.EPOCH, "e", 0)
    assert settles == 0
    ledger = BudgetLedger()
    for process, key, entry, *more in steps:
        assert isinstance(process, str)
        assert isinstance(key, str)
        assert isinstance(entry, BudgetEntry)
        if not more:
            ledger.restore(key, process, entry)
            link.eval(script.RESTORE, 1, script.BUDGET + key, 10**6, process, entry.text())
            continue
        first, need = int(str(more[0])), int(str(more[1]))
        entry = entry._replace(at=max(entry.at, first))
        expected = ledger.ask(
            process, BudgetRequest(BudgetAccount(key, limit, SlidingSpan("x", 64.0)), first, entry, need, 0)
        )
        figures = (process, limit, first, need, 10**6, epoch, 0, PARTS, script.RECALLS, key)
        reply = link.eval(script.ASK, 2, script.BUDGET + key, script.EPOCH, *figures, *entry.text().split(";"))
        assert [int(reply[0]), bool(reply[1])] == [expected.granted, expected.recalled]
        others = dict(zip(reply[3][::2], reply[3][1::2], strict=True))
        assert {name.decode(): text.decode() for name, text in others.items()} == expected.others
        stored = link.hget(script.BUDGET + key, process)
        assert isinstance(stored, bytes)
        assert stored.decode() == ledger.entries[key][process].text()


def test_nothing_is_granted_until_a_ledger_that_lost_its_data_has_settled(link: redis.Redis) -> None:
    link.flushall()
    epoch, settles = link.eval(script.BEAT, 1, script.EPOCH, "e", 60_000)
    assert 50_000 < settles <= 60_000
    figures = ("a", 100, 0, 7, 10**6, epoch, 60_000, PARTS, script.RECALLS, "x")
    keys = (script.BUDGET + "x", script.EPOCH)
    granted, _, settles, _ = link.eval(script.ASK, 2, *keys, *figures, 1, 0, 5, "0:1")
    assert (int(granted), settles > 0) == (5, True), "what it holds stays"
    assert link.eval(
        script.ASK, 2, *keys, *("another epoch" if each == epoch else each for each in figures), 1, 0, 5, ""
    ) == [-1]
    assert 0 < link.pttl(script.BUDGET + "x") <= 10**6

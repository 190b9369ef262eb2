"""The script that runs inside Redis answers as the ledger in Python does."""

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.redis_server import RedisServer
from throttler import lease_script as script
from throttler.core.leased_quota import RECALL_AGAIN, LeaseReply, LeaseRequest
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.windows import QuotaAccount

WINDOW = 1600
# The script's clock, as the test says.
CLOCK = "local now = tonumber(redis.call('GET', '{fairlead}:clock'))\n"
BEAT_KEYS = (script.GATEWAYS, script.JOINED, script.EPOCH)
ASKS = st.tuples(
    st.sampled_from("abcd"),  # gateway
    st.sampled_from("xy"),  # account
    st.integers(0, 40),  # held
    st.integers(0, 40),  # used
    st.sampled_from([0, 1, 1, 7]),  # more
    st.integers(1, 4),  # gateways it believes there are
    st.integers(0, 1000),  # milliseconds since the last
)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.client
    server.kill()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    asks=st.lists(ASKS, max_size=30),
    beats=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1000)), max_size=6),
)
def test_the_script_agrees_with_the_ledger(
    link: redis.Redis, asks: list[tuple[str, str, int, int, int, int, int]], beats: list[tuple[str, int]]
) -> None:
    link.flushall()
    ledger, now = QuotaLedger(WINDOW), 1_700_000_000_000
    # What expires by Redis's own clock must not expire here.
    lease = CLOCK + script.ASK.replace("'PX', ARGV[8]", "'PX', 1000000")
    for gateway, pause in beats:
        now += pause
        link.set("{fairlead}:clock", now)
        count, _ = link.eval(CLOCK + script.BEAT, 3, *BEAT_KEYS, gateway, WINDOW)
        assert count == ledger.beat(gateway, now)
    recalled_at = dict[str, int]()
    for gateway, key, held, used, more, gateways, pause in asks:
        now += pause
        link.set("{fairlead}:clock", now)
        if now - recalled_at.get(key, -WINDOW) >= WINDOW * RECALL_AGAIN:
            link.delete(script.RECALLED + key)
        ask = LeaseRequest(QuotaAccount(key, 40), held, used, more)
        keys = (script.ACCOUNT + key, script.JOINED, script.RECALLED + key)
        figures = (gateway, WINDOW, 40, held, used, more, gateways, 100, script.RECALLS, key)
        capacity, recalled = link.eval(lease, 3, *keys, *figures)
        answer = ledger.ask(gateway, ask, gateways, now)
        ledger.check_invariants()
        assert LeaseReply(capacity, bool(recalled)) == answer
        if recalled:
            recalled_at[key] = now


def test_nothing_outlives_its_use(link: redis.Redis) -> None:
    link.flushall()
    keys = (script.ACCOUNT + "x", script.JOINED, script.RECALLED + "x")
    link.eval(script.CLOCK + script.ASK, 3, *keys, "a", WINDOW, 40, 0, 10, 1, 1, 100, script.RECALLS, "x")
    assert 0 < link.pttl(script.ACCOUNT + "x") <= 2 * WINDOW

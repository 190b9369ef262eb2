"""What calls used: the gateway's ledger equals the workers' accounts to the last unit, and survives the gateway."""

import asyncio
import csv
import io
import json
import random
import sqlite3
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import Unavailable
from gateway import shared_usage, usage
from gateway.shared_usage import SharedUsage
from gateway.usage import UsageLedger, UsageSums
from serving.redis_access import open_redis
from serving.usage_report import KEYS, SUMS, UsageRow, as_csv, usage_report
from tests.redis_server import RedisServer
from tests.services import SECRET, Process, Stack, eventually
from tests.unit.cli.commands import called
from tests.unit.gateway.http.http_client import HttpClient

NAMES = st.sampled_from(["a", "b"])
ROWS = st.lists(
    st.builds(
        UsageRow,
        st.sampled_from(["2026-11-01", "2026-11-02"]),
        *([NAMES] * 4),
        *([st.integers(0, 10**12)] * 7),
        st.sampled_from([1.0, 2.5]),
    ),
    max_size=20,
)


@given(ROWS, st.permutations(KEYS).flatmap(lambda keys: st.integers(1, 5).map(lambda number: keys[:number])))
def test_every_report_has_the_sums_of_all_rows(rows: list[UsageRow], by: list[str]) -> None:
    report = usage_report(rows, by)
    for name in SUMS[:4]:
        assert sum(int(each[name]) for each in report) == sum(getattr(row, name) for row in rows)
    assert len({tuple(each[name] for name in by) for each in report}) == len(report)
    assert list(csv.DictReader(io.StringIO(as_csv(report, by)))) == [
        {name: str(cell) for name, cell in each.items()} for each in report
    ]
    for each in report:
        assert 0 <= float(each["share"]) <= 1
        assert 0 <= float(each["idle_share"]) <= 1


NAMED = ("=1+1", "+1", "-1", "@SUM(1)", "\uff1d1", "'=1", 'a",b', "a'b")


def test_names_in_csv_are_no_formulas_and_stay_different() -> None:
    rows = [UsageRow("2026-11-01", name, "", "a", "m", 1, 0, 0, 0, 1, 0, 0, 1.0) for name in NAMED]
    read = [row["tenant"] for row in csv.DictReader(io.StringIO(as_csv(usage_report(rows, ["tenant"]), ["tenant"])))]
    assert not any(name.startswith(("=", "+", "-", "@", "\uff1d")) for name in read)
    assert sorted(name.removeprefix("'") for name in read) == sorted(NAMED)


def test_shares_are_of_a_day_and_idle_shares_of_what_is_fair() -> None:
    def row(day: str, tenant: str, cost: int, weight: float) -> UsageRow:
        return UsageRow(day, tenant, "", "a", "m", 1, 0, 0, 0, cost, 0, 0, weight)

    rows = [row("1", "large", 50, 3.0), row("1", "small", 50, 1.0), row("2", "large", 7, 3.0)]
    shares = {
        (each["day"], each["tenant"]): (each["share"], each["idle_share"]) for each in usage_report(rows, KEYS[:2])
    }
    # Three quarters were fair for the large one, of which it left a third.
    assert shares == {("1", "large"): (0.5, 0.3333), ("1", "small"): (0.5, 0.0), ("2", "large"): (1.0, 0.0)}


def sums(calls: int) -> UsageSums:
    return UsageSums(calls, 2 * calls, 0, 3 * calls, 4 * calls, 5 * calls, 6 * calls, 1.0)


@pytest.mark.parametrize("table", ["ledger", "usage"])
def test_a_ledger_that_is_another_programs_database_is_refused(table: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute(f"CREATE TABLE {table} (something TEXT)")
    with pytest.raises(sqlite3.Error, match="no such column"):
        UsageLedger(str(tmp_path / "other"))


async def test_usage_that_cannot_be_written_is_kept_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(usage, "WRITE_SECONDS", 0.0)
    path = str(tmp_path / "usage")
    ledger = UsageLedger(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    running = asyncio.create_task(ledger.run())
    ledger.add("t/u", "a", "m", 0.0, sums(1))
    assert await ledger.rows("") == []
    ledger.add("t/u", "a", "m", 0.0, sums(2))
    assert await ledger.rows("") == []
    assert not running.done(), "the gateway goes on"
    other.execute("ROLLBACK")
    [row] = await ledger.rows("")
    assert (row.tenant, row.user, row.calls) == ("t", "u", 3)
    running.cancel()
    await asyncio.wait([running])
    assert [record.message for record in caplog.records] == ["usage cannot be written; it is kept and tried again"]


async def test_a_write_that_began_is_ended_and_told_of_when_its_caller_is_cancelled() -> None:
    ledger = UsageLedger("")
    told: list[usage.UsageKey] = []
    ledger.written = told.extend
    ledger.add("a/b", "app", "m", 0.0, sums(5))
    with ledger._lock:  # as another thread that reads holds it
        storing = asyncio.create_task(ledger.store())
        await asyncio.sleep(0)
        assert not ledger._new
        storing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await storing
    assert [key.user for key in told] == ["b"]
    assert [row.calls for row in await ledger.rows("")] == [5]


async def test_rows_wait_for_a_write_that_fails_and_hold_what_it_had_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "BUSY_SECONDS", 0.01)
    path = str(tmp_path / "usage")
    ledger = UsageLedger(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ledger.add("t/u", "a", "m", 0.0, sums(1))
    with ledger._lock:  # its thread has to wait
        storing = asyncio.create_task(ledger.store())
        await asyncio.sleep(0)
        ledger.add("t/u", "a", "m", 0.0, sums(2))
        reading = asyncio.create_task(ledger.rows(""))
        await asyncio.sleep(0)
    storing.add_done_callback(lambda _: other.execute("ROLLBACK"))  # before the next write begins
    assert [row.calls for row in await reading] == [3]


async def test_names_that_are_made_up_take_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_NAMES_IN_MEMORY", 3)
    ledger = UsageLedger("")
    for number in range(10):
        ledger.add(f"t/{number}", "a", "m", 0.0, sums(1))
    ledger.add("t/0", "a", "m", 0.0, sums(1))
    ledger.add("t/9", "a", "m", 86_400.0, sums(1))
    rows = [(row.day, row.tenant, row.user, row.app, row.calls) for row in await ledger.rows("")]
    assert rows == [
        ("1970-01-01", "(others)", "", "(others)", 7),
        ("1970-01-01", "t", "0", "a", 2),
        ("1970-01-01", "t", "1", "a", 1),
        ("1970-01-01", "t", "2", "a", 1),
        ("1970-01-02", "t", "9", "a", 1),
    ]


async def test_ledgers_of_one_file_add_up_and_are_kept(tmp_path: Path) -> None:
    path, day = str(tmp_path / "ledger"), 86_400.0
    ledgers = [UsageLedger(path) for _ in range(2)]
    writing = [asyncio.create_task(ledger.run()) for ledger in ledgers]
    await asyncio.sleep(0)
    for number in range(300):
        ledgers[number % 2].add(f"t/{number % 3}", "a", "m", day * (number % 2), sums(number))
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    again = UsageLedger(path)
    assert again.name == ledgers[0].name
    rows = await again.rows("")
    assert len(rows) == 6
    assert sum(row.calls for row in rows) == sum(range(300))
    assert {row.nano_money / row.calls for row in rows} == {5.0}
    assert {row.day for row in await again.rows("1970-01-02")} == {"1970-01-02"}


async def calls_at(shared: SharedUsage, least: int) -> int:
    """The calls of all gateways, once they are as many: gateways write theirs again."""
    deadline = time.monotonic() + 60
    while (calls := sum(row.calls for row in await shared.rows(""))) < least:
        assert time.monotonic() < deadline, f"{calls} calls, not {least}"
        await asyncio.sleep(0.01)
    return calls


@pytest.mark.parametrize("seed", range(3))
async def test_gateways_that_share_a_redis_report_what_all_used_and_nothing_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three ledgers are of one file; Redis is killed, and is empty afterwards."""
    monkeypatch.setattr(shared_usage, "WRITE_SECONDS", 0.01)
    redis, draw, used = RedisServer(tmp_path), random.Random(seed), 0
    ledgers = [UsageLedger(path) for path in ("", str(tmp_path / "ledger"), str(tmp_path / "ledger"))]
    shared = [SharedUsage(open_redis(redis.url), ledger) for ledger in ledgers]
    writing = [asyncio.create_task(each.run()) for each in shared]
    for _ in range(60):
        match draw.choice(["add"] * 8 + ["read"] * 4 + ["kill"]):
            case "add":
                calls = draw.randrange(1, 9)
                used += calls
                user = draw.choice("uvw")
                draw.choice(ledgers).add(f"t/{user}", "a", "m", time.time() - 86_400 * draw.randrange(2), sums(calls))
            case "read":
                rows = await draw.choice(shared).rows("")
                assert sum(row.calls for row in rows) <= used
                assert {row.nano_money / row.calls for row in rows} <= {5.0}
            case _:
                redis.kill()
                with pytest.raises(Unavailable, match="Redis, which is out of reach"):
                    await draw.choice(shared).rows("")
                redis.start()
    for each in shared:
        assert await calls_at(each, used) == used
    assert len({each.name for each in shared}) == 1
    ledgers[0].add("t/u", "a", "m", time.time(), sums(5))
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    client = open_redis(redis.url)
    heir = SharedUsage(client, UsageLedger(""))
    assert sum(row.calls for row in await heir.rows("")) == used + 5, "also what gateways that have gone used last"
    today = datetime.now(UTC).date().isoformat()
    assert {row.day for row in await heir.rows(today)} == {today}
    await client.aclose()
    redis.kill()


def report_of(gateway: Process, *options: str) -> list[dict[str, str]]:
    done = called(
        "usage",
        "--gateway",
        gateway.address,
        "--secret",
        SECRET,
        "--by",
        "tenant,user,app,model",
        "--format",
        "json",
        *options,
    )
    assert done.returncode == 0, done.stderr
    report: list[dict[str, str]] = json.loads(done.stdout)
    return report


def accounts(stack: Stack) -> dict[str, float]:
    """What workers charged, in millionths, by client."""
    services: Counter[str] = Counter()
    for worker in stack.status().services:
        for client in worker.clients:
            services[client.client] += round(client.service * 1e6)
    return dict(services)


def test_any_of_several_gateways_reports_what_workers_charged_for_all(stack: Stack, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    for name in "ab":
        stack.worker(name, engine="fake:0.0005")
    listens = {"http_listen": "127.0.0.1:0", "redis": redis.url}
    gateways = [stack.gateway(**listens, ledger=tmp_path / "ledger"), stack.gateway(**listens)]
    for number in range(12):
        http = HttpClient(gateways[number % 2].wait_for("listening")["http_port"])
        assert http.complete(prompt="some words", max_tokens=3 + number, user="ab"[number % 3 // 2]).status == 200

    def equals(*options: str) -> bool:
        report = report_of(gateways[1], *options)
        return {f"{row['tenant']}/{row['user']}": round(float(row["cost"]) * 1e6) for row in report} == accounts(stack)

    eventually(equals, "the sums are those of both gateways")
    assert equals("--gateway", gateways[0].address), "what both tell counts once"
    gateways[0].terminate()
    assert equals(), "the other one still knows"
    redis.kill()
    redis.start()
    gateways[0] = stack.gateway(**listens, ledger=tmp_path / "ledger")
    eventually(equals, "the file of the first and the memory of the second are told again")
    redis.kill()


def test_the_sums_equal_the_workers_accounts_exactly_and_survive_a_gateway(stack: Stack, tmp_path: Path) -> None:
    for name in "ab":
        stack.worker(name, engine="fake:0.0005")
    (tmp_path / "profiles.yaml").write_text("prices: {default: {input: 10, cached: 1, output: 30}}\n")
    settings = {"ledger": tmp_path / "ledger", "profiles": tmp_path / "profiles.yaml", "page_listen": "127.0.0.1:0"}
    gateway = stack.gateway(**settings, http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    prompt = "the same words again and again, so that they are cached by the block " * 20
    used: Counter[str] = Counter()
    for number in range(12):
        user = ("ann", "bob", "carol")[number % 3]
        answer = http.complete(prompt=prompt + user, max_tokens=3 + number, user=user)
        assert answer.status == 200
        used["output_tokens"] += answer.json["usage"]["completion_tokens"]
        used["prompt_tokens"] += answer.json["usage"]["prompt_tokens"]
        used["cached_tokens"] += answer.json["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)

    report = report_of(gateway)
    counted = {f"{row['tenant']}/{row['user']}": round(float(row["cost"]) * 1e6) for row in report}
    eventually(lambda: accounts(stack) == counted, f"workers' accounts are {counted}")
    for name, number in used.items():
        assert sum(int(row[name]) for row in report) == number
    assert used["cached_tokens"] > 0
    price = (used["prompt_tokens"] - used["cached_tokens"]) * 10 + used["cached_tokens"] + used["output_tokens"] * 30
    assert round(sum(float(row["money"]) for row in report) * 1e6) == price
    page = HttpClient(gateway.wait_for("listening")["page_port"])
    assert page.get("/usage").status == 401
    assert page.get("/usage", authorization="Bearer wrong").status == 401
    answer = page.get("/usage?format=csv", authorization=f"Bearer {SECRET}")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [row["user"] for row in rows] == ["ann", "bob", "carol"]
    assert {row["calls"] for row in rows} == {"4"}
    assert [row["user"] for row in page.get("/usage", authorization=f"Bearer {SECRET}").json] == ["ann", "bob", "carol"]
    answer = page.get("/usage?since=yesterday", authorization=f"Bearer {SECRET}")
    assert (answer.status, "got 'yesterday'" in answer.body.decode()) == (400, True)
    gateway.terminate()
    assert report_of(stack.gateway(**settings)) == report

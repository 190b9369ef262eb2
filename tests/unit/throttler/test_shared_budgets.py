"""Processes that share budgets on real ledgers, while ledgers and processes die: exact, and nobody is cut off."""

import asyncio
import itertools
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from serving.redis_access import open_redis
from tests.redis_server import RedisServer
from tests.unit.throttler.budget_fleet import Sharer, in_memory, sharing
from tests.unit.throttler.named_budgets import budgets_of
from throttler.budget_leases import Ledger, LedgerUnreachable
from throttler.core.budget import TokenUse
from throttler.core.budget_ledger import PARTS, BudgetReply, BudgetRequest
from throttler.core.decider import Arrival, Permit
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller, Rejected
from throttler.file_ledger import FileLedger
from throttler.redis_ledger import RedisLedger

MANY = 1_000_000
LIMIT = 10_000
ANN = Caller("t", "t/ann", "a")


def profiles(**budgets: float) -> Profiles:
    rates = RateLimits(user_per_minute=MANY, app_per_minute=MANY, budgets=budgets_of(**budgets))
    return Profiles(limits=rates, reference_tokens=10)


OF_A_DAY = profiles(user_tokens_per_day=LIMIT)


def ledgers(kind: str, count: int, directory: Path, settle_seconds: float = 0.0) -> Sequence[Ledger]:
    """Links of processes to a ledger of this kind."""
    if kind == "file":
        return [FileLedger(directory / "ledger") for _ in range(count)]
    if kind == "redis":
        url = f"unix://{directory / 'redis.sock'}"
        return [RedisLedger(open_redis(url), settle_seconds) for _ in range(count)]
    return in_memory(count)


async def admitted(sharers: Sequence[Sharer], amounts: Sequence[int], caller: Caller = ANN) -> int:
    """Send calls of these amounts to the processes in turn, all at once; return the sum of those that are admitted."""

    async def tokens(number: int, amount: int) -> int:
        decision = await sharers[number % len(sharers)].throttler.decide(Arrival(caller, prompt_tokens=amount))
        return amount if isinstance(decision, Permit) else 0

    total = sum(await asyncio.gather(*itertools.starmap(tokens, enumerate(amounts))))
    for sharer in sharers:
        sharer.decider.check_invariants()
    return total


@pytest.mark.parametrize("kind", ["memory", "file", "redis"])
async def test_processes_use_the_whole_budget_and_no_token_more(kind: str, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path) if kind == "redis" else None
    draw = random.Random(5)
    async with sharing(ledgers(kind, 3, tmp_path), OF_A_DAY) as sharers:
        amounts = [draw.choice([1, 20, 300, 900]) for _ in range(300)]
        total = await admitted(sharers, amounts)
        assert total <= LIMIT
        for _ in range(4):  # what others hold and do not need is given back
            total += await admitted(sharers, [400] * 9 + [20] * 9 + [1] * 30)
            await asyncio.sleep(0)
        assert 0.94 * LIMIT <= total <= LIMIT if kind == "file" else 0.99 * LIMIT <= total <= LIMIT
        refused = await sharers[0].throttler.decide(Arrival(ANN, prompt_tokens=LIMIT))
        assert isinstance(refused, Rejected)
        assert 82_000 < refused.retry_after < 90_000, "when the budget is free again"
        assert f"user_tokens_per_day={LIMIT}: the call is expected to need {LIMIT} tokens" in refused.message
    if redis is not None:
        redis.kill()


async def test_a_call_gives_back_to_other_processes_as_well(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    async with sharing(ledgers("redis", 2, tmp_path), OF_A_DAY) as [first, second]:
        permit = await first.throttler.decide(Arrival(ANN, prompt_tokens=9_000))
        assert isinstance(permit, Permit)
        assert await admitted([second], [8_000]) == 0
        first.throttler.settle(permit.reservation, TokenUse(100, 100))
        await eventually_admitted(second, 8_000)
    redis.kill()


async def eventually_admitted(sharer: Sharer, amount: int) -> None:
    deadline = time.monotonic() + 30
    while not await admitted([sharer], [amount]):
        assert time.monotonic() < deadline, f"{amount} tokens are never admitted"
        await asyncio.sleep(0.05)


async def test_without_its_ledger_a_process_goes_on_within_its_lease_and_is_exact_afterwards() -> None:
    links = in_memory(2)
    async with sharing(links, OF_A_DAY) as sharers:
        before = await admitted(sharers, [10, 10])
        for link in links:
            link.is_away = True
        during = await admitted(sharers, [50] * 400)
        assert 0 < during <= 2 * LIMIT // PARTS
        refused = await sharers[0].throttler.decide(Arrival(ANN, prompt_tokens=5_000))
        assert isinstance(refused, Rejected)
        assert refused.retry_after < 5, "the ledger may be back soon"
        assert "are left, but the ledger does not answer; retry in 1.0 s" in refused.message
        for link in links:
            link.is_away = False
        await eventually_admitted(sharers[0], LIMIT - before - during - 2 * LIMIT // PARTS)
        assert await admitted(sharers, [LIMIT // PARTS * 2 + 1]) == 0


class MortalLedger(FileLedger):
    """One that is told nothing more by a process that has died."""

    is_dead = False

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        if self.is_dead:
            raise LedgerUnreachable("dead")
        return await super().ask(requests)


async def test_a_budget_survives_every_process_in_a_file_and_loses_one_lease_at_most(tmp_path: Path) -> None:
    draw, total, deaths = random.Random(3), 0, 0
    while total < LIMIT // 2:
        links = [MortalLedger(tmp_path / "ledger") for _ in range(2)]
        async with sharing(links, OF_A_DAY) as sharers:
            total += await admitted(sharers, [draw.choice([7, 60, 200]) for _ in range(9)])
            for link in links:
                link.is_dead = True
                deaths += 1
    async with sharing(ledgers("file", 1, tmp_path), OF_A_DAY) as [heir]:
        for amount in (500, 100, 20, 5, 1):
            while got := await admitted([heir], [amount]):
                total += got
    assert LIMIT - deaths * LIMIT // PARTS <= total <= LIMIT
    assert total < LIMIT, "something was held by those that died"


def appended(directory: Path) -> Path:
    """The file to which a Redis with `appendonly` writes."""
    [path] = (directory / "appendonlydir").glob("*.incr.aof")
    return path


@pytest.mark.parametrize("persistence", ["no", "yes"])
@pytest.mark.parametrize("seed", range(3))
async def test_redis_killed_with_a_loss_of_data_at_random_moments_never_frees_a_budget(
    seed: int, persistence: str, tmp_path: Path
) -> None:
    """All is lost without persistence, and otherwise what was written since the last look at the file."""
    redis, draw, total = RedisServer(tmp_path, "--appendonly", persistence), random.Random(seed), 0

    async def calls(sharers: Sequence[Sharer]) -> None:
        nonlocal total
        while total < 0.9 * LIMIT:
            total += await admitted(sharers, [draw.choice([5, 50]) for _ in range(3)])
            await asyncio.sleep(0.01)

    async with sharing(ledgers("redis", 3, tmp_path, settle_seconds=2.5), OF_A_DAY) as sharers:
        using = asyncio.create_task(calls(sharers))
        for _ in range(2):
            await asyncio.sleep(draw.uniform(0.05, 0.4))
            kept = appended(tmp_path).stat().st_size if persistence == "yes" else 0
            await asyncio.sleep(draw.uniform(0.0, 0.2))
            redis.kill()
            if persistence == "yes":
                os.truncate(appended(tmp_path), kept)
            await asyncio.sleep(draw.uniform(0.0, 0.3))
            redis.start()
        async with asyncio.timeout(100):
            await using
        for amount in (500, 100, 20, 5, 1):
            for _ in range(3):
                total += await admitted(sharers, [amount] * 60)
        assert 0.99 * LIMIT <= total <= LIMIT
    redis.kill()


class WatchedLedger(RedisLedger):
    """One whose process notices late that Redis was away, and one that was answered since."""

    def __init__(self, redis: Redis, settle_seconds: float) -> None:
        super().__init__(redis, settle_seconds)
        self.may_restore, self.was_answered = asyncio.Event(), asyncio.Event()
        self.may_restore.set()

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        replies = await super().ask(requests)
        if any(request.need for request in requests):
            self.was_answered.set()
        return replies

    async def restore(self, known: Iterator[tuple[BudgetRequest, dict[str, str]]]) -> None:
        await self.may_restore.wait()
        await super().restore(known)


async def test_a_redis_that_forgot_the_last_second_grants_nothing_before_all_have_told_it(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec")
    links = [WatchedLedger(open_redis(redis.url), 5.0) for _ in range(2)]
    async with sharing(links, OF_A_DAY) as [late, early]:
        await eventually_admitted(late, 100)
        await eventually_admitted(early, 100)
        kept = appended(tmp_path).stat().st_size
        await eventually_admitted(late, 8_000)
        links[0].may_restore.clear()
        redis.kill()
        os.truncate(appended(tmp_path), kept)
        redis.start()
        links[1].was_answered.clear()

        async def ask() -> int:
            total = 0
            while not links[1].was_answered.is_set():
                total += await admitted([early], [5_000])
            return total

        asking = asyncio.create_task(ask())
        await links[1].was_answered.wait()
        links[0].may_restore.set()
        assert await asking == 0, "8,100 of 10,000 are used"
        await eventually_admitted(early, 1_500)
    redis.kill()


class MortalRedisLedger(RedisLedger):
    """One that is told nothing more by a process that has died."""

    is_dead = False

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        if self.is_dead:
            raise LedgerUnreachable("dead")
        return await super().ask(requests)


@pytest.mark.parametrize("seed", range(4))
async def test_processes_and_a_redis_that_writes_to_disk_all_killed_at_random_lose_leases_only(
    seed: int, tmp_path: Path
) -> None:
    draw, total, deaths = random.Random(seed), 0, 0
    redis = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    while total < 0.6 * LIMIT:
        links = [MortalRedisLedger(open_redis(redis.url), 0.0) for _ in range(2)]
        async with sharing(links, OF_A_DAY) as sharers:
            for _ in range(draw.randrange(1, 6)):
                total += await admitted(sharers, [draw.choice([5, 50]) for _ in range(8)])
                if draw.random() < 0.4:
                    redis.kill()
                    redis.start()
            for link in links:
                link.is_dead = True
                deaths += 1
    async with sharing(ledgers("redis", 1, tmp_path), OF_A_DAY) as [heir]:
        await eventually_admitted(heir, 1)
        total += 1
        for amount in (500, 100, 20, 5, 1):
            while got := await admitted([heir], [amount]):
                total += got
    assert LIMIT - deaths * LIMIT // PARTS <= total <= LIMIT
    redis.kill()


async def test_an_interaction_that_began_within_the_budget_finishes_and_the_next_one_waits() -> None:
    both = profiles(user_tokens_per_day=1_000, interaction_tokens=600)
    async with sharing(in_memory(2), both) as sharers:
        draws = itertools.cycle(sharers)

        async def call(interaction: str, amount: int, token: bytes) -> Permit | Rejected:
            arrival = Arrival(ANN, interaction, token, prompt_tokens=amount)
            decision = await next(draws).throttler.decide(arrival)
            return decision

        permit = await call("run", 100, b"")
        assert isinstance(permit, Permit)
        assert isinstance(await call("", 850, b""), Permit)
        for _ in range(5):
            permit = await call("run", 100, permit.token)
            assert isinstance(permit, Permit), "in the middle of its interaction nobody is cut off"
        refused = await call("run", 100, permit.token)
        assert isinstance(refused, Rejected)
        assert "interaction 'run' is over interaction_tokens=600" in refused.message
        refused = await call("next", 10, b"")
        assert isinstance(refused, Rejected)
        assert (
            "over user_tokens_per_day=1000: the call is expected to need 10 tokens, and 0 are left" in refused.message
        )
        assert refused.retry_after > 80_000


async def test_an_interaction_that_has_ended_leaves_its_name_a_whole_budget() -> None:
    async with sharing(in_memory(1), profiles(interaction_tokens=100)) as [only]:
        for _ in range(3):
            permit = await only.throttler.decide(Arrival(ANN, "journey", prompt_tokens=90, last=True))
            assert isinstance(permit, Permit)
            only.throttler.ended(permit)


def test_a_ledger_that_is_another_programs_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE budget (something TEXT)")
    with pytest.raises(sqlite3.Error, match="no such column"):
        FileLedger(tmp_path / "other")


async def test_a_full_disk_is_a_ledger_out_of_reach_until_there_is_room(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "ledger")
    database = ledger._database

    async def write() -> None:
        await ledger._carry_out(lambda: database.execute("INSERT INTO budget VALUES ('a', 'p', zeroblob(1000000))"))

    database.execute("PRAGMA max_page_count = 1")  # the least is what there is
    for _ in range(2):
        with pytest.raises(LedgerUnreachable, match="full"):
            await write()
        assert not database.in_transaction
    database.execute("PRAGMA max_page_count = 1000000")
    await write()
    await ledger.close()

"""What became of interactions, and which tokens were for nothing."""

import asyncio
import re
import urllib.request

import pytest

from cli import __main__ as command
from fairlead import Client
from fairlead.errors import ThrottledUser
from fairlead.outcomes import Outcome
from fairlead.retries import Retries
from fairlead.v1 import common_pb2
from gateway.accounting import Accounting, AppOutcomes
from gateway.call import Call
from tests.services import SECRET, Stack
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import Close, FinishedInteraction


def call(outcome: Outcome, received: int, *, interaction: str = "i", entered: bool = True, output: int = 10) -> Call:
    ended = Call(request_id="r", deadline=None, client="c", app="a", interaction=interaction, entered=entered)
    ended.usage = common_pb2.Usage(prompt_tokens=100, cached_tokens=60, output_tokens=output)
    ended.timings.received = received
    ended.outcome = outcome
    return ended


def account(*calls: Call) -> AppOutcomes:
    """The app's account after these calls of one interaction and its end."""
    accounting = Accounting()
    for ended in calls:
        accounting.ended(ended)
    accounting.closed(FinishedInteraction(InteractionKey("c", "a", "i"), len(calls), Close.END))
    return accounting.apps["a"]


def test_a_served_interaction_wastes_nothing() -> None:
    assert account(call(Outcome.COMPLETED, 1), call(Outcome.COMPLETED, 2)) == AppOutcomes(served=1, tokens=100)


def test_one_that_a_limit_cut_short_wasted_all_its_tokens() -> None:
    refused = call(Outcome.THROTTLED_USER, 2, entered=False, output=0)
    assert account(call(Outcome.COMPLETED, 1), refused) == AppOutcomes(throttled=1, tokens=50, wasted_tokens=50)


def test_a_later_call_makes_a_failure_good_and_a_parallel_one_does_not() -> None:
    refused = call(Outcome.THROTTLED_USER, 2, entered=False, output=0)
    assert account(call(Outcome.COMPLETED, 1), refused, call(Outcome.COMPLETED, 3)).served == 1
    assert account(call(Outcome.COMPLETED, 1), refused, call(Outcome.COMPLETED, 1)).throttled == 1


def test_broken_and_cancelled_are_told_apart() -> None:
    assert account(call(Outcome.COMPLETED, 1), call(Outcome.INTERNAL, 2)) == AppOutcomes(
        broken=1, tokens=100, wasted_tokens=100
    )
    assert account(call(Outcome.COMPLETED, 1), call(Outcome.CANCELLED, 2)) == AppOutcomes(cancelled=1, tokens=100)


@pytest.mark.parametrize("outcome", [Outcome.REJECTED_INVALID, Outcome.REJECTED_TOO_LONG, Outcome.PERMISSION_DENIED])
def test_a_callers_own_mistake_is_no_outage(outcome: Outcome) -> None:
    refused = call(outcome, 2, entered=False, output=0)
    assert account(call(Outcome.COMPLETED, 1), refused) == AppOutcomes(invalid=1, tokens=50)
    alone = Accounting()
    alone.ended(call(outcome, 1, interaction="", entered=False, output=0))
    assert alone.apps["a"] == AppOutcomes(invalid=1)


def test_an_interaction_began_when_the_first_of_its_calls_came() -> None:
    accounting = Accounting()
    for received in (7, 5, 9):
        accounting.ended(call(Outcome.COMPLETED, received))
    assert accounting.closed(FinishedInteraction(InteractionKey("c", "a", "i"), 3, Close.END)) == 5


def test_calls_that_stand_alone() -> None:
    accounting = Accounting()
    for outcome in (Outcome.COMPLETED, Outcome.INTERNAL, Outcome.CANCELLED):
        accounting.ended(call(outcome, 1, interaction="", entered=False))
    accounting.ended(call(Outcome.THROTTLED_APP, 1, interaction="", entered=False, output=0))
    accounting.ended(call(Outcome.THROTTLED_USER, 1, interaction="new", entered=False, output=0))
    expected = AppOutcomes(served=1, broken=1, cancelled=1, refused=2, tokens=150, wasted_tokens=50)
    assert accounting.apps["a"] == expected


def test_calls_of_nobody_known_count_for_no_app() -> None:
    accounting, refused = Accounting(), call(Outcome.UNAUTHENTICATED, 1, interaction="", entered=False, output=0)
    refused.client = refused.app = ""
    accounting.ended(refused)
    assert accounting.apps == {}


def test_the_closing_of_an_interaction_without_calls_here_is_nobodys() -> None:
    accounting = Accounting()
    accounting.closed(FinishedInteraction(InteractionKey("c", "a", "i"), 1, Close.END))
    assert accounting.apps == {}


async def interact(address: str) -> None:
    """More than a fixed limit of three calls a minute allows, even if a minute turns once."""
    async with Client(address, user="ann", retries=Retries(attempts=0)) as client:
        for _ in range(6):
            async with client.interaction() as interaction:
                await interaction.generate("plan", max_tokens=4, ignore_eos=True)
                await interaction.generate("act", max_tokens=4, ignore_eos=True)


def test_status_shows_it(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.worker("a")
    gateway = stack.gateway(throttle="rpm:3", metrics="127.0.0.1:0")
    with pytest.raises(ThrottledUser):
        asyncio.run(interact(gateway.address))
    arguments = ["--scheduler", stack.scheduler.address, "--gateway", gateway.address, "--secret", SECRET]
    assert command.main(["status", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("app: interactions"))
    figures = dict(zip(lines[heading].split()[2:], lines[heading + 1].split()[1:], strict=True))
    assert lines[heading + 1].split()[0] == "default"
    assert int(figures["served"]) >= 1
    assert int(figures["throttled"]) + int(figures["refused"]) >= 1
    assert int(figures["tokens"]) > int(figures["wasted_tokens"])
    port = gateway.logged("listening")[0]["metrics_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        exposed = answer.read().decode()
    assert re.search(r'^fairlead_interactions_judged_total\{.*result="served".*\} [1-9]', exposed, re.MULTILINE)
    assert re.search(r"^fairlead_limits_degraded.* 0", exposed, re.MULTILINE)
    assert command.main(["status", *arguments[:-1], "a wrong secret"]) == 1

"""One app under overload by an abuser, throttled by rpm, by oit, or not at all: real processes, fake engine.

    python -m lab.bench.overload [--users 10] [--calls 12]

Every well-behaved user is an agent with one interaction of `--calls` consecutive calls, more in total than T_user. A
refused call ends the interaction, because its next step needs the answer. The abuser sends single calls at a fixed high
rate and ignores refusals. Every policy runs with and without the abuser.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from cli.admin import account
from cli.stack import Stack
from fairlead import Client
from fairlead.errors import FairleadError, ThrottledApp, ThrottledUser
from fairlead.retries import Retries
from lab.bench.machine import commit, processor

APP = "agent"
USER_LIMIT, APP_LIMIT = 10, 1000  # calls per minute
PROFILES = f"limits: {{user_per_minute: {USER_LIMIT}}}\napps: {{{APP}: {{per_minute: {APP_LIMIT}}}}}\n"
WORKERS = 2
STEP_SECONDS = 0.02
AGENT_TOKENS, ABUSER_TOKENS = 16, 64
THINK_SECONDS = 0.2
STAGGER_SECONDS = 1.0  # between agents' starts
ABUSER_EVERY = 0.08  # seconds
COLUMNS = (
    "throttle",
    "beside the agents",
    "agents served",
    "throttled in the middle",
    "broken",
    "their tokens wasted",
    "their p99 TTFT",
    "abuser's calls served",
    "throttled",
    "tokens wasted, as the gateway counts",
)
PROMPT = "You are an agent. Think step by step about what you have seen so far, and then act. "


@dataclass(slots=True)
class Agents:
    """The outcomes of the well-behaved users' interactions."""

    finished: int = 0
    throttled: int = 0
    broken: int = 0
    wasted: int = 0  # tokens computed for interactions that did not finish
    first_tokens: list[float] = field(default_factory=list)  # seconds to each call's first token

    @property
    def p99(self) -> float:
        """The 99th percentile of the time to the first token, in seconds."""
        ordered = sorted(self.first_tokens)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else float("nan")


@dataclass(slots=True)
class Abuse:
    """The outcomes of the abuser's calls."""

    sent: int = 0
    served: int = 0
    throttled: int = 0


async def agent(address: str, name: str, calls: int, seen: Agents) -> None:
    """Run one interaction, in which the prompt grows by each answer."""
    prompt, tokens = PROMPT * 4, 0
    async with Client(address, user=name, app=APP, retries=Retries(attempts=0)) as client:
        try:
            async with client.interaction() as interaction:
                for _ in range(calls):
                    began, first = time.monotonic(), 0.0
                    stream = interaction.stream(prompt, max_tokens=AGENT_TOKENS, ignore_eos=True)
                    async for chunk in stream:
                        first = first or time.monotonic() - began
                        prompt += chunk.text
                    seen.first_tokens.append(first)
                    usage = stream.completion.usage
                    tokens += usage.prompt_tokens - usage.cached_tokens + usage.output_tokens
                    await asyncio.sleep(THINK_SECONDS)
        except (ThrottledUser, ThrottledApp):
            seen.throttled += 1
            seen.wasted += tokens
        except FairleadError as error:
            print(f"broken: {error!r}", file=sys.stderr)
            seen.broken += 1
            seen.wasted += tokens
        else:
            seen.finished += 1


async def abuse(address: str, got: Abuse) -> None:
    """Send calls until cancelled."""

    async def call(client: Client, number: int) -> None:
        got.sent += 1
        try:
            await client.generate(f"{number} {PROMPT * 8}", max_tokens=ABUSER_TOKENS, ignore_eos=True)
            got.served += 1
        except (ThrottledUser, ThrottledApp):
            got.throttled += 1
        except FairleadError:
            pass

    async with (
        Client(address, user="abuser", app=APP, retries=Retries(attempts=0)) as client,
        asyncio.TaskGroup() as calls,
    ):
        number = 0
        while True:
            calls.create_task(call(client, number := number + 1))
            await asyncio.sleep(ABUSER_EVERY)


async def run(address: str, users: int, calls: int, *, with_abuser: bool) -> tuple[Agents, Abuse]:
    """Start the agents one after the other; the abuser is active from start to end."""
    seen, got = Agents(), Abuse()
    abuser = asyncio.create_task(abuse(address, got)) if with_abuser else None
    await asyncio.sleep(3.0 if with_abuser else 0.0)
    async with asyncio.TaskGroup() as agents:
        for number in range(users):
            agents.create_task(agent(address, f"agent-{number}", calls, seen))
            await asyncio.sleep(STAGGER_SECONDS)
    if abuser is not None:
        abuser.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await abuser
    return seen, got


async def measure(policy: str, users: int, calls: int, *, with_abuser: bool) -> str:
    """Measure one row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        profiles = Path(folder) / "profiles.yaml"
        profiles.write_text(
            f"limits: {{user_per_minute: {USER_LIMIT}}}\napps: {{{APP}: {{per_minute: {APP_LIMIT}}}}}\n"
        )
        stack = Stack(
            workers=WORKERS,
            log_dir=Path(folder),
            model="smollm2-135m-instruct",
            engine="fake",
            worker_args=["--engine", f"fake:{STEP_SECONDS}", "--max-running", "4"],
            gateway_args=["--throttle", policy, "--profiles", str(profiles)],
        )
        try:
            await asyncio.to_thread(stack.start)
            seen, got = await run(stack.gateway, users, calls, with_abuser=with_abuser)
            [app] = (await asyncio.to_thread(account, stack.gateway, stack.secret)).apps
        finally:
            await asyncio.to_thread(stack.stop)
    who = "abuser" if with_abuser else "no other user"
    agents = f"{seen.finished}/{users} | {seen.throttled} | {seen.broken} | {seen.wasted:,} | {seen.p99 * 1e3:,.0f} ms"
    abuser = f"{got.served}/{got.sent} | {got.throttled}" if with_abuser else "- | -"
    return f"| {policy} | {who} | {agents} | {abuser} | {app.wasted_tokens:,} of {app.tokens:,} |"


async def table(users: int, calls: int) -> None:
    """Print the table row by row, in one event loop, because gRPC's poller supports only one."""
    print(f"{processor()}; commit {commit()}; T_user {USER_LIMIT}/min, {users} agents of {calls} calls\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for with_abuser in (True, False):
        for policy in ("none", "rpm", "oit"):
            print(await measure(policy, users, calls, with_abuser=with_abuser), flush=True)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.overload", description=__doc__)
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--calls", type=int, default=12)
    args = parser.parse_args()
    asyncio.run(table(args.users, args.calls))


if __name__ == "__main__":
    main()

"""One system under contention, until it has delivered enough service for a comparison."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cli.demo.lengths import SMALL_PAGES, Lengths
from cli.demo.observation import Observation, observe
from cli.demo.systems import System
from cli.demo.users import USERS, DemoRecord, contend
from cli.progress import Progress
from cli.stack import Stack

LOOK_SECONDS = 0.25


@dataclass(slots=True)
class Trial:
    """The users' records and the workers' observations of one system; `cut` is True if the time limit ended it."""

    system: System
    record: DemoRecord = field(default_factory=DemoRecord)
    observation: Observation = field(default_factory=Observation)
    cut: bool = False
    lengths: Lengths = SMALL_PAGES

    @property
    def unserved(self) -> list[str]:
        """The users of whom no call has been answered yet."""
        answered = {call.user for call in self.record.calls}
        return [user.name for user in USERS if user.name not in answered]


async def hold(trial: Trial, stack: Stack, enough: Callable[[Observation], bool], limit_seconds: float) -> None:
    """Let the users contend on the running `stack` until `enough` returns True and everybody has been served, or
    `limit_seconds` have passed."""
    stop, began = asyncio.Event(), time.monotonic()
    observer = asyncio.create_task(observe(stack.scheduler, stack.secret, trial.observation))
    contention = asyncio.create_task(contend(stack.gateway, trial.lengths, stop, trial.record))
    with Progress(sys.stderr) as progress:
        while not contention.done():
            await asyncio.wait({contention, observer}, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED")
            if observer.done():
                observer.result()
            if enough(trial.observation) and not trial.unserved:
                break
            if time.monotonic() - began >= limit_seconds:
                trial.cut = True
                break
            progress.show(trial.system.title, "serving", _served(trial.observation))
            progress.tick()
        progress.done(trial.system.title, _served(trial.observation))
    observer.cancel()
    stop.set()
    await contention


def _served(observation: Observation) -> str:
    """Format the service of each user so far."""
    latest = observation.samples[-1].service if observation.samples else {}
    return "service " + ", ".join(f"{user.name} {latest.get(user.name, 0.0):,.0f}" for user in USERS)

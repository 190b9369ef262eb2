"""A quiet user beside one neighbour at a time, as in `lab.bench.neighbours`, but with a real model: gateway, scheduler
and worker are processes, and the model's weights are random. Under DLPM and, for comparison, under FCFS."""

import asyncio
import random
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

from cli.stack import Stack
from fairlead import Client
from lab.bench.flood.phase import Phase
from lab.bench.flood.trial import ask
from lab.bench.flood.workload import QUIET, WORDS, Asked, Workload
from lab.bench.gpu.model_folder import written_model
from lab.bench.gpu.row import Figure, Row
from lab.bench.gpu.scale import Crowd, Scale
from lab.bench.gpu.subject import Subject
from lab.bench.neighbours.quiet import QuietUser
from serving.statistics import percentile

CROWD = "crowd"
PREFIX = " ".join(WORDS * 8)  # of all the quiet user's questions
SEEDS = count()  # of the neighbours' prompts, none of which comes again


def rows(subject: Subject) -> Iterator[Row]:
    """Yield the quiet user's times alone and beside each neighbour, and what the neighbour gets."""
    scale = subject.scale
    with written_model(subject) as model:
        for policy in scale.neighbour_policies:
            with _stack(subject, policy, model) as stack, asyncio.Runner() as loop:
                loop.run(_phase(stack.gateway, None, scale.neighbour_ramp, 0.0, scale))  # as a warm-up
                for crowd in (None, *scale.crowds):
                    ramp, seconds = scale.neighbour_ramp, scale.neighbour_seconds
                    phase = loop.run(_phase(stack.gateway, crowd, ramp, seconds, scale))
                    yield _row(policy, crowd, phase)


def _stack(subject: Subject, policy: str, model: Path) -> Stack:
    return Stack(
        workers=1,
        log_dir=subject.out / "services",
        model=str(model),
        worker_args=["--policy", policy, "--kv-tokens", str(subject.scale.kv_tokens), "--device", subject.device],
        gateway_args=["--throttle", "none"],
    )


async def _phase(gateway: str, crowd: Crowd | None, ramp: float, seconds: float, scale: Scale) -> Phase:
    """Let both call for `ramp` and `seconds`, of which the latter count, then cancel what is open."""
    loop = asyncio.get_running_loop()
    async with Client(gateway, user=QUIET) as client, Client(gateway, user=CROWD) as other:
        quiet, neighbour = QuietUser(client, PREFIX), QuietUser(other, "")
        work = Workload(quiet_every=scale.neighbour_quiet_every, quiet_answer=16)
        began = loop.time() + ramp
        tasks = [asyncio.create_task(ask(quiet, work.questions(str(crowd), ramp + seconds)))]
        if crowd:
            tasks += [asyncio.create_task(_repeat(neighbour, crowd)) for _ in range(crowd.open)]
        await asyncio.sleep(ramp + seconds)
        ended = loop.time()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return Phase(began, ended, [*quiet.calls, *neighbour.calls])


async def _repeat(neighbour: QuietUser, crowd: Crowd) -> None:
    while True:
        dice = random.Random(next(SEEDS))
        await neighbour.call(CROWD, Asked(" ".join(dice.choices(WORDS, k=crowd.prompt)), crowd.output))


def _row(policy: str, crowd: Crowd | None, phase: Phase) -> Row:
    asked = phase.asked_by(QUIET)
    # A question without an answer counts with its wait until the end.
    first = [(call.tokens_at[0] if call.tokens_at else phase.ended) - call.sent for call in asked]
    between = [later - earlier for call in asked for earlier, later in pairwise(call.tokens_at)]
    figures: dict[str, Figure] = {
        "asked": len(asked),
        "failed": sum(bool(call.text) for call in phase.calls),
        "first_p50_ms": percentile(first, 50) * 1e3,
        "first_p99_ms": percentile(first, 99) * 1e3,
    }
    if between:
        figures |= {f"between_p{p}_ms": percentile(between, p) * 1e3 for p in (50, 99)}
    if crowd:
        figures["crowd_tokens_per_s"] = _computed(crowd, phase) / phase.seconds
    return Row(f"{policy}, {crowd.name if crowd else 'alone'}", figures)


def _computed(crowd: Crowd, phase: Phase) -> int:
    """Return the tokens of the crowd's prompts and outputs that were computed in the phase; a prompt counts when its
    first token comes."""
    arrivals = [call.tokens_at for call in phase.calls if call.user == CROWD]
    prompts = sum(bool(times) and times[0] >= phase.began for times in arrivals)
    return prompts * crowd.prompt + sum(at >= phase.began for times in arrivals for at in times)

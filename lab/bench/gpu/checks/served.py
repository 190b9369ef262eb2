"""A quiet user beside a flood, served by the real gateway, scheduler and worker with a model of random weights."""

import asyncio
from collections.abc import Iterator

from cli.stack import Stack
from fairlead import Client
from lab.bench.flood.call import ObservedCall
from lab.bench.flood.figures import figures
from lab.bench.flood.phase import Phase
from lab.bench.flood.trial import trial
from lab.bench.flood.workload import FLOOD, USERS, Asked, Workload
from lab.bench.gpu.model_folder import written_model
from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject


def rows(subject: Subject) -> Iterator[Row]:
    """Yield what the quiet user waits for its first token, alone and beside the flood."""
    scale = subject.scale
    with written_model(subject) as model:
        stack = Stack(
            workers=1,
            log_dir=subject.out / "services",
            model=str(model),
            worker_args=["--kv-tokens", str(scale.served_kv_tokens), "--device", subject.device],
            gateway_args=["--throttle", "none"],
        )
        with stack:
            work = Workload(quiet_every=scale.quiet_every, flood_open=scale.flood_open)
            alone, flooded = asyncio.run(_trial(stack.gateway, work, scale.alone_seconds, scale.flooded_seconds))
    found = figures("fairlead", alone, flooded)
    yield Row("alone", {"p50_ms": found.alone.p50 * 1e3, "p99_ms": found.alone.p99 * 1e3})
    yield Row(
        "beside the flood",
        {
            "p50_ms": found.flooded.p50 * 1e3,
            "p99_ms": found.flooded.p99 * 1e3,
            "allowed_ms": found.target * 1e3,
            "within": found.keeps_target,
            "step_p99_ms": found.step * 1e3,
            "flood_share": found.shares[FLOOD],
            "tokens_per_s": found.tokens_per_second,
            "hit_rate": found.hit_rate,
        },
    )


async def _trial(gateway: str, work: Workload, alone: float, flooded: float) -> tuple[Phase, Phase]:
    clients = {user: Client(gateway, user=user) for user in USERS}
    try:
        return await trial(lambda: SdkCaller(clients), work, alone, flooded, ramp=min(5.0, flooded / 4))
    finally:
        for client in clients.values():
            await client.close()


class SdkCaller:
    """Calls through the project's own SDK; see lab.bench.flood.trial.Caller."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients
        self.calls: list[ObservedCall] = []

    async def call(self, user: str, asked: Asked) -> ObservedCall:
        """See Caller."""
        loop = asyncio.get_running_loop()
        call = ObservedCall(user, loop.time())
        self.calls.append(call)
        stream = self._clients[user].stream(asked.prompt, max_tokens=asked.max_tokens, ignore_eos=True, each_token=True)
        async with stream:
            async for chunk in stream:
                call.tokens_at.append(loop.time())
                call.text += chunk.text
        usage = stream.completion.usage
        call.prompt_tokens, call.cached_tokens, call.output_tokens = (
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.output_tokens,
        )
        call.done = True
        return call

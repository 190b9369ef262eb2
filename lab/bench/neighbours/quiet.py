"""The quiet user: it asks at its own pace, and sees when each token of an answer comes."""

import asyncio

from fairlead import Client, FairleadError
from lab.bench.flood.call import ObservedCall
from lab.bench.flood.workload import Asked

PREFIX = "All of my questions begin with these instructions. " * 40  # about 500 tokens, which a cache can keep


class QuietUser:
    """Sends calls through the SDK, whose prompts all begin with `prefix`; see lab.bench.flood.trial.Caller."""

    def __init__(self, client: Client, prefix: str = PREFIX) -> None:
        self._client = client
        self._prefix = prefix
        self.calls: list[ObservedCall] = []

    async def call(self, user: str, asked: Asked) -> ObservedCall:
        """Return the call, which is not `done` if it failed."""
        call = ObservedCall(user, _now())
        self.calls.append(call)
        stream = self._client.stream(
            self._prefix + asked.prompt, max_tokens=asked.max_tokens, ignore_eos=True, each_token=True
        )
        try:
            async with stream:
                async for chunk in stream:
                    if chunk.token_ids:
                        call.tokens_at.append(_now())
        except FairleadError as error:
            call.text = str(error)
            return call
        usage = stream.completion.usage
        call.prompt_tokens, call.cached_tokens = usage.prompt_tokens, usage.cached_tokens
        call.output_tokens, call.done = usage.output_tokens, True
        return call


def _now() -> float:
    return asyncio.get_running_loop().time()

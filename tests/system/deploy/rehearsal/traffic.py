"""Users that never stop asking: interactions of three calls each, every answer known beforehand, no call repeated."""

import asyncio
from collections import Counter
from collections.abc import Awaitable

from fairlead import Client
from fairlead.interaction import Interaction
from fairlead.retries import Retries

API_KEY = "evaluation-only"
USERS = 4
TOKENS = 8
CALLS = 3
ANSWER_SECONDS = 30.0


class Traffic:
    """`failures` says what went wrong, in words; `completed` counts answers by the act in which they began."""

    def __init__(self, address: str, model: str = "") -> None:
        self.failures: list[str] = []
        self.completed: Counter[str] = Counter()
        self._during = ""
        self._address, self._model = address, model
        self._expected: dict[str, str] = {}
        self._stopping = False
        self._answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Learn the right answers while nothing disturbs, then begin."""
        users = [f"user-{number}" for number in range(USERS)]
        prompts = [_prompt(user, number) for user in users for number in range(CALLS)]
        async with self._client(users[0]) as client:
            answers = await asyncio.gather(
                *(client.generate(prompt, model=self._model, max_tokens=TOKENS, ignore_eos=True) for prompt in prompts)
            )
        self._expected = {prompt: answer.text for prompt, answer in zip(prompts, answers, strict=True)}
        assert all(self._expected.values())
        self._tasks = [asyncio.create_task(self._ask(user)) for user in users]

    async def through(self, name: str, act: Awaitable[object]) -> None:
        """Act while users ask; return when a call that began after it has been answered, or one has failed."""
        self._during = name
        await act
        async with asyncio.timeout(ANSWER_SECONDS):
            before = self.completed[name]
            while self.completed[name] == before and not self.failures:
                self._answered.clear()
                await self._answered.wait()

    async def stop(self) -> None:
        """Return when every call that has begun has ended."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def _client(self, user: str) -> Client:
        return Client(self._address, api_key=API_KEY, user=user, app="rehearsal", retries=Retries(attempts=0))

    async def _ask(self, user: str) -> None:
        async with self._client(user) as client:
            while not self._stopping:
                async with client.interaction() as interaction:
                    for number in range(CALLS):
                        await self._call(interaction, _prompt(user, number))

    async def _call(self, interaction: Interaction, prompt: str) -> None:
        during = self._during
        try:
            completion = await interaction.generate(
                prompt, model=self._model, max_tokens=TOKENS, ignore_eos=True, timeout=ANSWER_SECONDS
            )
        except Exception as error:  # whatever it is, it is a lost call
            self.failures.append(f"during {during}: {error!r}")
            return
        finally:
            self._answered.set()
        if completion.text != self._expected[prompt]:
            self.failures.append(f"during {during}: {completion.text!r} instead of {self._expected[prompt]!r}")
        elif during:
            self.completed[during] += 1


def _prompt(user: str, number: int) -> str:
    return f"{user}, call {number}: " + "context " * 40

"""Users that never stop asking: interactions of three calls each, every answer known beforehand, no call repeated."""

import asyncio
from collections import Counter

from fairlead import Client
from fairlead.interaction import Interaction
from fairlead.retries import Retries

TOKENS = 60
CALLS = 3
ANSWER_SECONDS = 30.0


class Traffic:
    """`failures` says what went wrong, in words; `completed` counts answers by what was going on when they began."""

    def __init__(self, address: str, api_key: str, users: int) -> None:
        self.failures: list[str] = []
        self.completed: Counter[str] = Counter()
        self.during = "the start"
        self._address, self._api_key = address, api_key
        self._users = [f"user-{number}" for number in range(users)]
        self._expected: dict[str, str] = {}
        self._stopping = False
        self._answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Learn the right answers while nothing disturbs, then begin."""
        async with self._client(self._users[0]) as client:
            for user in self._users:
                for number in range(CALLS):
                    prompt = _prompt(user, number)
                    completion = await client.generate(prompt, max_tokens=TOKENS, ignore_eos=True)
                    assert len(completion.text) == TOKENS, "the stand-in's tokens are one character each"
                    self._expected[prompt] = completion.text
        self._tasks = [asyncio.create_task(self._ask(user)) for user in self._users]

    async def next_answer(self) -> None:
        """Return when a call that began during this act has been answered, or one has failed."""
        before = self.completed[self.during]
        async with asyncio.timeout(ANSWER_SECONDS):
            while self.completed[self.during] == before and not self.failures:
                self._answered.clear()
                await self._answered.wait()

    async def stop(self) -> None:
        """Return when every call that has begun has ended."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def _client(self, user: str) -> Client:
        return Client(self._address, api_key=self._api_key, user=user, app="rehearsal", retries=Retries(attempts=0))

    async def _ask(self, user: str) -> None:
        async with self._client(user) as client:
            while not self._stopping:
                async with client.interaction() as interaction:
                    for number in range(CALLS):
                        await self._call(interaction, _prompt(user, number))

    async def _call(self, interaction: Interaction, prompt: str) -> None:
        during = self.during
        try:
            completion = await interaction.generate(prompt, max_tokens=TOKENS, ignore_eos=True, timeout=ANSWER_SECONDS)
        except Exception as error:  # whatever it is, it is a lost call
            self.failures.append(f"during {during}: {error!r}")
            return
        finally:
            self._answered.set()
        if completion.text == self._expected[prompt]:
            self.completed[during] += 1
        else:
            self.failures.append(f"during {during}: {completion.text!r} instead of {self._expected[prompt]!r}")


def _prompt(user: str, number: int) -> str:
    return f"{user}, call {number}: " + "context " * 40

"""A conversation: each turn sends all earlier messages, and the cached prefix makes this cheap."""

import asyncio
import sys

import fairlead

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7000"
QUESTIONS = ("What is a fairlead?", "Where is it found on a ship?", "Say that in one word.")


async def main() -> None:
    """Ask three questions in one conversation."""
    messages = [("system", "You answer in one short sentence.")]
    async with fairlead.Client(ADDRESS) as client, client.interaction() as interaction:
        for question in QUESTIONS:
            messages.append(("user", question))
            answer = await interaction.chat(messages, max_tokens=24)
            messages.append(("assistant", answer.text))
            cached, prompt = answer.usage.cached_tokens, answer.usage.prompt_tokens
            print(f"> {question}\n{answer.text}\n  ({cached} of {prompt} prompt tokens came from the cache)")


asyncio.run(main())

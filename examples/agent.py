"""An agent: one interaction of a plan, parallel steps and a summary. Only its first call can be throttled."""

import asyncio
import sys

import fairlead

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7000"


async def main() -> None:
    """Make a plan, execute two steps of it in parallel, and sum up the results."""
    async with fairlead.Client(ADDRESS) as client, client.interaction() as interaction:
        plan = await interaction.chat([("user", "Plan a walk in three words.")], max_tokens=24)
        steps = ("Name a place for it.", "Name a time for it.")
        answers = await asyncio.gather(
            *(interaction.chat([("assistant", plan.text), ("user", step)], max_tokens=24) for step in steps)
        )
        notes = " ".join(answer.text for answer in answers)
        summary = await interaction.chat([("user", f"Sum up: {notes}")], max_tokens=24)
        print(f"plan: {plan.text}\nnotes: {notes}\nsummary: {summary.text}")


asyncio.run(main())

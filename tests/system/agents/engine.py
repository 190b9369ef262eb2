"""An engine that says what the task in its prompt prescribes, so that agents of others have something to do.

A task is `Do these steps: ` and a JSON list of answers in Base64, which no program quotes. An answer is
`[TOOL, ARGUMENTS]`, a call in the format of Hermes, or a text. The number of calls in the conversation since the last
task says which answer is next; of a program that offers no tools and runs what the model writes, the number of codes.
Another request that offers no tools, such as one for a title, is answered with the last step.
A prompt without a task is answered as the engine `fake` answers it.
"""

import base64
import json
import logging
import re
from typing import Any

from local_worker.core.batch import Batch, CompletedStep, Slice
from local_worker.engine.fake import FakeEngine
from local_worker.sandbox import Sandbox
from local_worker.tokenizer import ByteTokenizer

log = logging.getLogger(__name__)
BEGINS = "the last answer begins"  # of a task
TASK = re.compile(r"Do these steps: ([\w=-]+)")
CODE = "<code>"  # in each answer for a program that has no tools and runs what the model writes
FOUND = "$FOUND"  # in a step: the word that was read last
READ = re.compile(r"high water: (\w+)")  # what a file to be read has in it
[END] = ByteTokenizer.eos_token_ids


def task(*steps: str | tuple[str, dict[str, Any]]) -> str:
    """Return a prompt that has the engine say `steps`, one after the other."""
    return "Do these steps: " + base64.urlsafe_b64encode(json.dumps(steps).encode()).decode()


def answer(prompt: str) -> str | None:
    """Return what a prompt of the byte tokenizer is answered with; None where it has no task. Log the last step."""
    tasks = list(TASK.finditer(prompt))
    if not tasks:
        return None
    steps, since = json.loads(base64.urlsafe_b64decode(tasks[-1][1])), prompt[tasks[-1].end() :]
    if prompt.startswith("tool: "):
        made = since.count("<tool_call>")
    else:
        made = since.count(CODE) if CODE in steps[-1] else len(steps)
    if made >= len(steps) - 1:
        log.info(BEGINS)
    step = steps[min(made, len(steps) - 1)]
    if not isinstance(step, str):
        name, arguments = step
        step = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    found = READ.findall(prompt)
    return step.replace(FOUND, found[-1]) if found else step


class ScriptedEngine(FakeEngine):
    """The engine `fake`, with bytes as tokens, that answers tasks."""

    def __init__(self, step_seconds: float, block_tokens: int, sandbox: Sandbox | None) -> None:
        super().__init__(ByteTokenizer.vocab_size, step_seconds, block_tokens, sandbox=sandbox)
        self._answers: dict[int, bytes | None] = {}  # by request

    def launch(self, batch: Batch) -> CompletedStep:
        """See Engine."""
        for request in batch.left:
            self._answers.pop(request, None)
        return super().launch(batch)

    def _next(self, piece: Slice, allowed: bytes | None) -> int:
        prompt_tokens = piece.prompt_tokens - piece.seed_position
        if piece.request not in self._answers:
            tokens = [token for page in piece.pages for token in self._pages[page]][:prompt_tokens]
            said = answer(bytes(tokens).decode(errors="replace"))
            self._answers[piece.request] = None if said is None else said.encode()
        if (text := self._answers[piece.request]) is None:
            return super()._next(piece, allowed)
        position = piece.stop - prompt_tokens
        return text[position] if position < len(text) else END

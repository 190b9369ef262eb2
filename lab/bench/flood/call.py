"""One call as its user saw it: read from the events of OpenAI's API."""

import json
from dataclasses import dataclass, field

DONE = b"[DONE]"


class CallFailed(Exception):
    """The error for a call that was answered by an error other than "too many requests", or by half a stream."""


@dataclass(slots=True)
class ObservedCall:
    """One call; times are seconds on the client's clock, and `tokens_at` has the arrival of each part of the output.

    A call that was refused for its rate is repeated: its waiting time begins when it was first `sent`.
    """

    user: str
    sent: float
    tokens_at: list[float] = field(default_factory=list)
    text: str = ""
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    done: bool = False
    ends_interaction: bool = False

    def observe(self, data: bytes, now: float) -> None:
        """Add an event of the stream, without its `data:`. Raises CallFailed if it is an error."""
        if data == DONE:
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            raise CallFailed(f"{self.user}: {event['error']}")
        if text := "".join(choice.get("text") or "" for choice in event["choices"]):
            self.tokens_at.append(now)
            self.text += text
        if usage := event.get("usage"):
            self.prompt_tokens, self.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
            self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

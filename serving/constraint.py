"""Constraints of outputs: the texts that a model may generate for a request."""

from dataclasses import dataclass

from fairlead.errors import InvalidRequest

MAX_CONSTRAINT_BYTES = 65_536
MAX_CHOICES = 1024
CALLS = "calls"  # the kind of a grammar of tool calls, which no caller gives: a worker makes it of the chat's tools


@dataclass(frozen=True, slots=True)
class Constraint:
    """A description of all texts that an output may be; `kind` is the name of its field in SamplingParams.

    `texts` holds the schema, the regular expression or the grammar; of the kind `choice` it holds all choices, and of
    `json_object` nothing. A value beyond a limit raises InvalidRequest, which names the field, the limit and the value.
    """

    kind: str
    texts: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """The path of the field that holds it."""
        return "prompt.chat.tools" if self.kind == CALLS else f"sampling.{self.kind}"

    @property
    def size(self) -> int:
        """The number of bytes of `texts`."""
        return sum(len(text.encode()) for text in self.texts)

    def __post_init__(self) -> None:
        if self.size > MAX_CONSTRAINT_BYTES:
            raise InvalidRequest(f"at most {MAX_CONSTRAINT_BYTES} bytes, got {self.size}", self.field)
        if self.kind == "choice":
            check_choices(len(self.texts))
        if not all(self.texts):
            raise InvalidRequest("must not be empty", self.field)


def check_choices(texts: int) -> None:
    """Raise InvalidRequest for no choices, and for more texts than a choice may have."""
    if not 1 <= texts <= MAX_CHOICES:
        raise InvalidRequest(f"must hold 1 to {MAX_CHOICES} texts, got {texts}", "sampling.choice")

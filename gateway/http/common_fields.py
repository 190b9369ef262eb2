"""The fields that bodies of several APIs have: who sends the request, what it wishes for, and how tokens are chosen.

docs/http.md has the rule for wishes, which change nothing that is promised, and says who sends which ids of sessions.
Claude Code's `metadata.user_id` is JSON with `device_id` and `session_id`; in earlier versions it was
`user_HASH_account_UUID_session_UUID`, and proxies pass it on in other fields. Every start of the program is a session:
if it were part of the user's name, each start would be a client of its own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2
from gateway.core.session_tree import Session
from serving.names import MAX_NAME
from serving.sampling_params import check_stops

MAX_USER_ID = 1024  # characters: several times what Claude Code sends


class SessionHeader(NamedTuple):
    """A header with the id of a session, and the header with the id of the session that started it, if there is one."""

    name: str
    parent: str = ""


# The first one that a request has counts.
HEADERS = (
    SessionHeader("x-claude-code-session-id"),
    SessionHeader("session-id"),
    SessionHeader("session_id", "x-codex-parent-thread-id"),
    SessionHeader("x-session-id", "x-parent-session-id"),
    SessionHeader("x-opencode-session", "x-parent-session-id"),
    SessionHeader("x-openwebui-chat-id"),
    SessionHeader("x-llm-d-inference-fairness-id"),
)


def session_of(headers: Mapping[str, str], named: str) -> Session | None:
    """Return the session that the headers name, else `named`, which the body names; None where nothing does.

    An id that cannot be shown in a log counts as none: headers of these names may mean something else to others.
    """
    for header in HEADERS:
        if header.name in headers and (name := _usable(headers[header.name])):
            return Session(name, _usable(headers.get(header.parent, "")))
    return Session(name) if named and (name := _usable(named)) else None


def _usable(name: str) -> str:
    """Return `name` if it can stand in a log and in the header of the answer, otherwise nothing."""
    name = name.strip()
    return name if len(name) <= MAX_NAME and name.isascii() and name.isprintable() and ";" not in name else ""


class Sender(NamedTuple):
    """Who sends a request: the user that its body names, in `field`, and the session of an agent; empty: none."""

    user: str
    session: Session | None
    field: str


class UserId(NamedTuple):
    """The user and the session that an id names, and the body's field that names the user; each is empty for none."""

    user: str = ""
    session: str = ""
    field: str = ""


def parse_user_id(text: Any, field: str) -> UserId:
    """Return what `text` names; a value that is no text names nothing.

    Raise InvalidRequest, which names `field`, for a text that is too long. It is not looked at.
    """
    if not isinstance(text, str):
        return UserId()
    if len(text) > MAX_USER_ID:
        raise InvalidRequest(f"at most {MAX_USER_ID} characters, got {len(text)}", field)
    user, _, session = text.rpartition("_session_")
    if user.startswith("user_") and "_account_" in user and session:
        return UserId(user, session)
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return UserId(text)
    if not (isinstance(fields, dict) and isinstance(fields.get("session_id"), str)):
        return UserId(text)
    device = fields.get("device_id")
    return UserId(device if isinstance(device, str) else "", fields["session_id"])


def named_by(metadata: Any, user: str | None = None, safety_identifier: str | None = None) -> UserId:
    """Return the first user and the first session that the fields of a body name; raise as `parse_user_id`."""
    in_metadata = metadata.get("user_id") if isinstance(metadata, dict) else None
    fields = {"user": user, "safety_identifier": safety_identifier, "metadata.user_id": in_metadata}
    first = UserId()
    for field, text in fields.items():
        if text:
            named = parse_user_id(text, field)
            user_field = first.field or (field if named.user else "")
            first = UserId(first.user or named.user, first.session or named.session, user_field)
    return first


LONGEST = 32  # characters
Level = Annotated[str, msgspec.Meta(max_length=LONGEST)]  # of an effort or a verbosity, whose names differ


class Wish(NamedTuple):
    """A wish: the field of the body that has it, and the variables by which chat templates may know it."""

    field: str
    variables: Mapping[str, Any] = {}


def effort(field: str, level: str) -> Wish:
    """Return the wish for so much reasoning; `none` wishes for no reasoning."""
    return Wish(field, {"reasoning_effort": level, **thinking(level != "none")})


def thought(field: str, asked: Any) -> Iterator[Wish]:
    """Yield the wish that the model thinks, or does not, in the forms that OpenAI-compatible APIs have for it.

    Whatever has another form wishes for something that nobody here knows.
    """
    match asked:
        case bool():
            yield Wish(field, thinking(asked))
        case str() if len(asked) <= LONGEST:
            yield effort(field, asked)
        case {"effort": str(level)} if len(level) <= LONGEST:
            yield effort(field, level)
        case {"enabled": bool(wanted)}:
            yield Wish(field, thinking(wanted))
        case {"type": str(kind)}:
            yield Wish(field, thinking(kind != "disabled"))
        case _ if asked:
            yield Wish(field)


def verbosity(field: str, level: str) -> Wish:
    """Return the wish for so long an answer."""
    return Wish(field, {"verbosity": level})


def thinking(wanted: bool) -> dict[str, Any]:
    """Return the variables by which templates know whether the model is to think."""
    return {"enable_thinking": wanted, "thinking": wanted}


def ask(chat: common_pb2.Chat, wishes: Iterable[Wish]) -> None:
    """Add `wishes` to the chat; of two with the same variable the later one counts."""
    variables: dict[str, Any] = {}
    for wish in wishes:
        variables.update(wish.variables)
    if variables:
        chat.wishes.CopyFrom(as_template_kwargs(variables))


def without_effect(wishes: Iterable[Wish], granted: Collection[str]) -> list[str]:
    """Return the fields of the wishes that had no effect; `granted` are the variables that the template was given."""
    return [wish.field for wish in wishes if not any(name in granted for name in wish.variables)]


Natural = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Maximum = Annotated[int, msgspec.Meta(ge=0)]  # of tokens; programs send the largest integer of their language
SEEDS = 2**64
LEAST_TOP_P = 1e-9  # the APIs allow 0, engines do not: the most likely token alone


class Body(msgspec.Struct, kw_only=True):
    """What bodies of every API have; absent and null mean the engine's default, but for the temperature: 1 then."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 1)] | None = None
    min_p: float | None = None
    stop_token_ids: list[Natural] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Natural | None = None
    ignore_eos: bool | None = None
    stored_bytes: ClassVar[int] = 0  # see ParsedRequest

    @property
    def counts_tokens(self) -> bool:
        """See ParsedRequest."""
        return False

    @property
    def body_type(self) -> type[msgspec.Struct]:
        """See ParsedRequest."""
        return type(self)

    def parameters(self, max_tokens: int | None, stop: Sequence[str] | None) -> common_pb2.SamplingParams:
        """Return how tokens are chosen, up to `max_tokens` of them or to one of the texts `stop`.

        Raise InvalidRequest for more stops than a call may have.
        """
        check_stops(len(stop or ()), len(self.stop_token_ids or ()))
        return common_pb2.SamplingParams(
            max_tokens=None if max_tokens is None else bounded(max_tokens),
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=LEAST_TOP_P if self.top_p == 0 else self.top_p,
            top_k=None if self.top_k is None else max(0, self.top_k),
            min_p=self.min_p,
            stop=stop or (),
            stop_token_ids=self.stop_token_ids or (),
            seed=None if self.seed is None else self.seed % SEEDS,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
        )


def bounded(maximum: int) -> int:
    """Return a maximum of tokens as messages can have it: no context is as long."""
    return min(maximum, 2**32 - 1)


class OpenAIRequest(Body, kw_only=True):
    """The fields that all of OpenAI's bodies have: the model, the user and whether the answer is streamed.

    Absent fields and null mean the API's default. Unknown fields are ignored.
    """

    model: str | None = None
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Any = None
    prompt_cache_key: Any = None
    service_tier: Any = None

    @property
    def named_tier(self) -> str:
        """See ParsedRequest."""
        return self.service_tier if isinstance(self.service_tier, str) else ""

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """See ParsedRequest."""
        named = named_by(self.metadata, self.user, self.safety_identifier)
        key = self.prompt_cache_key
        session = session_of(headers, named.session or (key if isinstance(key, str) else ""))
        return Sender(named.user, session, named.field)

    @property
    def names(self) -> Mapping[str, str]:
        """See ParsedRequest."""
        return {}

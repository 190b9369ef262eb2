"""The interaction of a call: named as such, by a session, or by what the request repeats of earlier answers."""

import hmac
import time
from collections.abc import Callable, Iterator
from functools import partial

from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.continued_chats import ToolCallIds, Turn, chat_digests
from gateway.core.recent_names import RecentNames
from gateway.core.seen_calls import SeenCall
from gateway.core.session_tree import SessionTree
from gateway.validation import check_interaction, count_calls
from throttler.core.decider import Permit

PER_CLIENT = 256  # requests, and interactions of other gateways, that are remembered of one client, the latest ones
TOTAL = 100_000  # that are remembered of all clients: a key that may name users can invent clients
SECONDS = 3600.0  # a client's requests and interactions are forgotten after this time without another one


class CallInteractions:
    """Set the interactions of calls, with what is known of clients' sessions and of their latest chats.

    `tell` tells other gateways of this one's calls, if there can be any. They are known here by `learn`.
    """

    def __init__(self, secret: str, accepted_secret: str, tell: Callable[[SeenCall], None] | None = None) -> None:
        self._sessions = SessionTree()
        self._tool_call_ids = ToolCallIds(secret, accepted_secret)
        self._tell = tell
        self._digest_key = hmac.digest(secret.encode(), b"fairlead chat digest", "sha256")
        # By the digest of what a request asked: its interaction, empty for the first request of a chat without tools.
        self._chats = RecentNames(per_client=PER_CLIENT, total=TOTAL, seconds=SECONDS)
        # By app and interaction: the token of its latest call at another gateway.
        self._tokens = RecentNames(per_client=PER_CLIENT, total=TOTAL, seconds=SECONDS)

    def learn(self, seen: SeenCall) -> None:
        """Remember a call that another gateway has admitted."""
        now = time.monotonic()
        if seen.asked:
            self._chats.remember(seen.client, seen.asked, seen.interaction, now)
        if seen.interaction:
            self._tokens.remember(seen.client, _place(seen.app, seen.interaction), seen.token or None, now)

    def token(self, call: Call) -> bytes:
        """Return the token with which a call continues its interaction: the caller's, or the one that is known here."""
        given: bytes = call.request.interaction.token
        if given or not call.interaction:
            return given
        known = self._tokens.find(call.client, _place(call.app, call.interaction), time.monotonic())
        return bytes.fromhex(known or "")

    def admitted(self, call: Call, permit: Permit) -> None:
        """Tell other gateways of a call that was admitted here."""
        if self._tell is not None and (call.interaction or call.asked):
            token = b"" if permit.arrival.last else permit.token
            self._tell(SeenCall(call.client, call.app, call.interaction, token.hex(), call.asked))

    def join(self, call: Call) -> None:
        """Set the interaction of a call whose client is known, and the ids of its tool calls; raise InvalidRequest.

        A call that continues no interaction begins one if it offers tools, because its caller may answer with their
        results, or if it is the second one of a chat. The many chats that have one call open nothing.
        """
        request, chat = call.request, call.request.prompt.chat
        if request.HasField("interaction"):
            check_interaction(request.interaction)
            call.interaction = request.interaction.id
        elif call.session is not None:
            call.interaction = self._sessions.root(call.client, call.session, time.monotonic())
        elif call.repeats_tool_calls:
            call.interaction = self._continued(call)
        if call.repeats_tool_calls:
            earlier = count_calls(chat)
            make = partial(self._tool_call_ids.make, call.client, call.interaction, call.request_id)
            call.tool_call_id = lambda number: make(earlier + number)

    def _continued(self, call: Call) -> str:
        """Return the interaction of a chat by what it repeats, and remember that its answer belongs to it."""
        chat, now = call.request.prompt.chat, time.monotonic()
        digests = chat_digests([Turn(message.role, message.content) for message in chat.messages], self._digest_key)
        found = self._chats.find(call.client, digests.answered, now)
        interaction = self._tool_call_ids.continued_by(call.client, newest_first(chat)) or found or ""
        if not interaction and (chat.tools or found is not None):
            interaction = self._tool_call_ids.begun_by(call.request_id if found is None else digests.through)
        if chat.messages:
            call.asked = digests.asked
            self._chats.remember(call.client, digests.asked, interaction, now)
        return interaction


def _place(app: str, interaction: str) -> str:
    """Return an interaction's key among those of a client; neither name holds a line break."""
    return f"{app}\n{interaction}"


def newest_first(chat: common_pb2.Chat) -> Iterator[str]:
    """Yield the ids of a chat's tool calls, the newest first, also of those of which only the result is left."""
    for message in reversed(chat.messages):
        for made in reversed(message.tool_calls):
            yield made.id
        if message.tool_call_id:
            yield message.tool_call_id

"""The interaction of a call: named as such, by a session, or by what the request repeats of earlier answers."""

from collections.abc import Iterator
from functools import partial

from fairlead.v1 import common_pb2
from gateway.call import Call, CallRequest
from gateway.core.chat_digests import Turn, chat_digests
from gateway.core.recent_names import RecentNames
from gateway.core.session_tree import SessionTree
from gateway.core.tool_call_ids import ToolCallIds
from gateway.validation import check_interaction

CHATS_PER_CLIENT = 256  # requests that are remembered of one client, the latest ones
CHATS = 100_000  # requests that are remembered of all clients: a key that may name users can invent clients
CHAT_SECONDS = 3600.0  # a client's requests are forgotten after this time without another one


class CallInteractions:
    """Set the interactions of calls, with what is known of clients' sessions and of their latest chats."""

    def __init__(self, tool_call_ids: ToolCallIds) -> None:
        self._sessions = SessionTree()
        self._tool_call_ids = tool_call_ids
        # By the digest of what a request asked: its interaction, empty for the first request of a chat without tools.
        self._chats = RecentNames(per_client=CHATS_PER_CLIENT, total=CHATS, seconds=CHAT_SECONDS)

    def join(self, call: Call, received: CallRequest, now: float) -> None:
        """Set the interaction of a call whose client is known, and the ids of its tool calls; raise InvalidRequest.

        A call that continues no interaction begins one if it offers tools, because its caller may answer with their
        results, or if it is the second one of a chat. The many chats that have one call open nothing.
        """
        request, chat = received.message, received.message.prompt.chat
        if request.HasField("interaction"):
            check_interaction(request.interaction)
            call.interaction = request.interaction.id
        elif received.session is not None:
            call.interaction = self._sessions.root(call.client, received.session, now)
        elif received.repeats_tool_calls:
            call.interaction = self._continued(call, chat, now)
        if received.repeats_tool_calls:
            earlier = sum(len(message.tool_calls) for message in chat.messages)
            make = partial(self._tool_call_ids.make, call.client, call.interaction, call.request_id)
            call.tool_call_id = lambda number: make(earlier + number)

    def _continued(self, call: Call, chat: common_pb2.Chat, now: float) -> str:
        """Return the interaction of a chat by what it repeats, and remember that its answer belongs to it."""
        digests = chat_digests(Turn(message.role, message.content) for message in chat.messages)
        found = self._chats.find(call.client, digests.answered, now)
        interaction = self._tool_call_ids.continued_by(call.client, newest_first(chat)) or found or ""
        if not interaction and (chat.tools or found is not None):
            interaction = self._tool_call_ids.begun_by(call.request_id if found is None else digests.through)
        if chat.messages:
            self._chats.remember(call.client, digests.asked, interaction, now)
        return interaction


def newest_first(chat: common_pb2.Chat) -> Iterator[str]:
    """Yield the ids of a chat's tool calls, the newest first, also of those of which only the result is left."""
    for message in reversed(chat.messages):
        for made in reversed(message.tool_calls):
            yield made.id
        if message.tool_call_id:
            yield message.tool_call_id

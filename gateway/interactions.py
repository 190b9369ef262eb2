"""The interaction of a call: named as such, by a session, or by the tool calls that the request repeats."""

from collections.abc import Iterator
from functools import partial

from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.call_request import CallRequest
from gateway.core.session_tree import SessionTree
from gateway.core.tool_call_ids import ToolCallIds
from gateway.validation import check_interaction


class CallInteractions:
    """Set the interactions of calls, with what is known of clients' sessions."""

    def __init__(self, tool_call_ids: ToolCallIds) -> None:
        self._sessions = SessionTree()
        self._tool_call_ids = tool_call_ids

    def join(self, call: Call, received: CallRequest, now: float) -> None:
        """Set the interaction of a call whose client is known, and the ids of its tool calls; raise InvalidRequest.

        A call that offers tools and continues nothing begins an interaction: its caller may answer with their results.
        """
        request, chat = received.message, received.message.prompt.chat
        if request.HasField("interaction"):
            check_interaction(request.interaction)
            call.interaction = request.interaction.id
        elif received.session is not None:
            call.interaction = self._sessions.root(call.client, received.session, now)
        elif received.repeats_tool_calls:
            continued = self._tool_call_ids.continued_by(call.client, newest_first(chat))
            call.interaction = continued or (self._tool_call_ids.begun_by(call.request_id) if chat.tools else "")
        if received.repeats_tool_calls:
            earlier = sum(len(message.tool_calls) for message in chat.messages)
            make = partial(self._tool_call_ids.make, call.client, call.interaction, call.request_id)
            call.tool_call_id = lambda number: make(earlier + number)


def newest_first(chat: common_pb2.Chat) -> Iterator[str]:
    """Yield the ids of a chat's tool calls, the newest first, also of those of which only the result is left."""
    for message in reversed(chat.messages):
        for made in reversed(message.tool_calls):
            yield made.id
        if message.tool_call_id:
            yield message.tool_call_id

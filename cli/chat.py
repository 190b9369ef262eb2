"""`fairlead chat`: a conversation, which is one interaction."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator

from cli.patience import NO_RETRIES, patiently
from cli.target import add_gateway_options, add_sampling_options, call_options, gateway
from fairlead import Chunk, SyncClient
from fairlead.errors import FairleadError, InvalidRequest, Unavailable, listed

Messages = list[tuple[str, str]]
HELP = """\
Ctrl-C  stops the answer; the part that has arrived stays in the conversation
Ctrl-D  ends the conversation
an empty line sends a message again that has got no answer"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "chat", help="chat with the model; Ctrl-C stops an answer, Ctrl-D ends the conversation"
    )
    add_gateway_options(parser)
    add_sampling_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a conversation until the end of input.

    Without a terminal, each line of standard input is a message, and the first error ends the command.
    """
    address, options = gateway(args), call_options(args)
    with (
        SyncClient(address, api_key=args.api_key, user=args.user, app=args.app, retries=NO_RETRIES) as client,
        client.interaction() as interaction,
    ):
        options["model"] = args.model or _only_model(client, address)

        def ask(messages: Messages) -> Iterator[Chunk]:
            return patiently(address, lambda: interaction.stream_chat(messages, **options))

        conversation = ChatHistory(ask, args.system)
        if sys.stdin.isatty() and sys.stdout.isatty():
            print(f"{options['model']} at {address}; Ctrl-C stops an answer, Ctrl-D ends, /help")
            _talk(conversation)
        else:
            for line in filter(None, map(str.strip, sys.stdin)):
                conversation.say(line)
    return 0


class ChatHistory:
    """The messages of a conversation, without those that got no answer."""

    def __init__(self, ask: Callable[[Messages], Iterator[Chunk]], system: str) -> None:
        self._ask = ask
        self._messages: Messages = [("system", system)] if system else []

    def say(self, text: str) -> None:
        """Send `text` and print the answer as it arrives; after Ctrl-C the part received so far is the answer.

        Raises a FairleadError, or KeyboardInterrupt when no part of the answer had arrived.
        """
        asked, answer = [*self._messages, ("user", text)], ""
        try:
            for chunk in self._ask(asked):
                answer += chunk.text
                print(chunk.text, end="", flush=True)
        except KeyboardInterrupt:
            if not answer:
                raise
        finally:
            if answer:
                print(flush=True)
        self._messages = [*asked, ("assistant", answer)]


def _talk(conversation: ChatHistory) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - its import gives `input` line editing and history
    unanswered = ""
    while True:
        try:
            text = input("> ").strip() or unanswered
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not text:
            continue
        if text == "/help":
            print(HELP)
            continue
        try:
            conversation.say(text)
            unanswered = ""
        except (FairleadError, KeyboardInterrupt) as error:
            unanswered = text
            print(f"fairlead: {str(error) or 'stopped'}; an empty line sends the message again", file=sys.stderr)


def _only_model(client: SyncClient, address: str) -> str:
    """Return the model that is served. Raises InvalidRequest when there are several, Unavailable when there is none."""

    def served() -> Iterator[list[str]]:
        names = [model.name for model in client.models()]
        if not names:
            raise Unavailable("no worker is attached yet")
        yield names

    [names] = patiently(address, served)
    if len(names) > 1:
        raise InvalidRequest(f"must name one of the models: {listed(names)}", "--model")
    return names[0]

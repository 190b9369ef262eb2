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


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("chat", help="talk to the model; Ctrl-C stops an answer, Ctrl-D ends")
    add_gateway_options(parser)
    add_sampling_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, answer, repeat. Without a terminal each line of standard input is a message, and the first error ends."""
    address, options = gateway(args), call_options(args)
    with (
        SyncClient(address, api_key=args.api_key, user=args.user, app=args.app, retries=NO_RETRIES) as client,
        client.interaction() as interaction,
    ):
        options["model"] = args.model or _only_model(client, address)

        def ask(messages: Messages) -> Iterator[Chunk]:
            return patiently(address, lambda: interaction.stream_chat(messages, **options))

        conversation = Conversation(ask, args.system)
        if sys.stdin.isatty() and sys.stdout.isatty():
            print(f"{options['model']} at {address}; Ctrl-C stops an answer, Ctrl-D ends")
            _talk(conversation)
        else:
            for line in filter(None, map(str.strip, sys.stdin)):
                conversation.say(line)
    return 0


class Conversation:
    """The messages so far. One that was not answered is not among them."""

    def __init__(self, ask: Callable[[Messages], Iterator[Chunk]], system: str) -> None:
        self._ask = ask
        self._messages: Messages = [("system", system)] if system else []

    def say(self, text: str) -> None:
        """Print the answer to `text` as it comes; what came before Ctrl-C is the answer. Raises a FairleadError, or
        KeyboardInterrupt when nothing had come."""
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


def _talk(conversation: Conversation) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - from here on `input` edits lines and knows those of this conversation
    unanswered = ""
    while True:
        try:
            text = input("> ").strip() or unanswered
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not text:
            continue
        try:
            conversation.say(text)
            unanswered = ""
        except (FairleadError, KeyboardInterrupt) as error:
            unanswered = text
            print(f"fairlead: {str(error) or 'stopped'}; an empty line sends the message again", file=sys.stderr)


def _only_model(client: SyncClient, address: str) -> str:
    """Raises InvalidRequest when there are several, Unavailable when there is none."""

    def served() -> Iterator[list[str]]:
        names = [model.name for model in client.models()]
        if not names:
            raise Unavailable("no worker is attached yet")
        yield names

    [names] = patiently(address, served)
    if len(names) > 1:
        raise InvalidRequest(f"must name one of the models: {listed(names)}", "--model")
    return names[0]

"""`fairlead chat`: a conversation, which is one interaction."""

import argparse
import contextlib

from cli.target import add_gateway_options, gateway
from fairlead import SyncClient


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("chat", help="talk to the model; an empty line or Ctrl-D ends")
    add_gateway_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, answer, repeat."""
    messages: list[tuple[str, str]] = []
    address = gateway(args)
    with (
        contextlib.suppress(EOFError, KeyboardInterrupt),
        SyncClient(address, api_key=args.api_key, user=args.user, app=args.app) as client,
        client.interaction() as interaction,
    ):
        while line := input("> ").strip():
            messages.append(("user", line))
            answer = ""
            options = {"max_tokens": args.max_tokens, "temperature": args.temperature}
            for chunk in interaction.stream_chat(messages, **options):
                answer += chunk.text
                print(chunk.text, end="", flush=True)
            print()
            messages.append(("assistant", answer))
    return 0

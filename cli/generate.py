"""`fairlead generate`: complete a prompt, streaming."""

import argparse

from cli.target import add_gateway_options, gateway
from fairlead import SyncClient


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("generate", help="complete a prompt")
    parser.add_argument("prompt")
    add_gateway_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the completion as it comes."""
    with SyncClient(gateway(args), api_key=args.api_key, user=args.user, app=args.app) as client:
        for chunk in client.stream(args.prompt, max_tokens=args.max_tokens, temperature=args.temperature):
            print(chunk.text, end="", flush=True)
    print()
    return 0

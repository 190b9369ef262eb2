"""Options that say which stack a command talks to."""

import argparse
import os

from cli import endpoint


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that call the gateway."""
    parser.add_argument("--gateway", help="address (default: the stack that `fairlead up` runs, else 127.0.0.1:7000)")
    parser.add_argument("--api-key", default=os.environ.get("FAIRLEAD_API_KEY", ""), help="or FAIRLEAD_API_KEY")
    parser.add_argument("--user", default="", help="the user to act for, where the key may name users")
    parser.add_argument("--app", default="", help="the application that calls")
    parser.add_argument("--max-tokens", type=int, default=128, help="most tokens of output (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")


def gateway(args: argparse.Namespace) -> str:
    """The gateway's address."""
    running = endpoint.read()
    return args.gateway or (running.gateway if running else "127.0.0.1:7000")

"""Options that say which stack a command talks to, for whom, and how the model shall answer."""

import argparse
import os
from typing import Any

from cli import endpoint

DEFAULT_GATEWAY = "127.0.0.1:7000"
SAMPLING = ("max_tokens", "temperature", "top_k", "top_p", "seed", "stop")


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that call the gateway."""
    parser.add_argument("--gateway", help=f"address (default: the stack that `fairlead up` runs, or {DEFAULT_GATEWAY})")
    parser.add_argument("--api-key", default=os.environ.get("FAIRLEAD_API_KEY", ""), help="or FAIRLEAD_API_KEY")
    parser.add_argument("--user", default="", help="the user to act for, where the key may name users")
    parser.add_argument("--app", default="", help="the application that calls")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that ask for text; those that are not given are the gateway's to choose."""
    parser.add_argument("--model", default="", help="its name (default: the only one that is served)")
    parser.add_argument("--system", default="", metavar="TEXT", help="system message that comes first")
    parser.add_argument("--max-tokens", type=int, help="most tokens of output (default: 128)")
    parser.add_argument("--temperature", type=float, help="0 is greedy (default: 0)")
    parser.add_argument("--top-k", type=int, help="sample among so many tokens (default: all)")
    parser.add_argument("--top-p", type=float, help="sample among tokens of this probability together (default: 1)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text (default: the gateway draws one)")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; repeatable")


def call_options(args: argparse.Namespace) -> dict[str, Any]:
    """The model and the sampling options that were given, as the SDK takes them."""
    given = {name: getattr(args, name) for name in SAMPLING}
    return {"model": args.model, **{name: value for name, value in given.items() if value is not None}}


def gateway(args: argparse.Namespace) -> str:
    """The gateway's address."""
    running = endpoint.read()
    return args.gateway or (running.gateway if running else DEFAULT_GATEWAY)

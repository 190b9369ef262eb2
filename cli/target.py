"""Options that select the stack, the user and the model's sampling of a command."""

import argparse
import os
from typing import Any

from cli import endpoint

DEFAULT_GATEWAY = "127.0.0.1:7000"
SAMPLING = ("max_tokens", "temperature", "top_k", "top_p", "seed", "stop")


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gateway", help=f"address (default: the stack of `fairlead up`, or else {DEFAULT_GATEWAY})")
    parser.add_argument(
        "--api-key", default=os.environ.get("FAIRLEAD_API_KEY", ""), help="API key (default: FAIRLEAD_API_KEY)"
    )
    parser.add_argument("--user", default="", help="user of the call, if the key may name users")
    parser.add_argument("--app", default="", help="name of the calling application")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that generate text; the gateway sets those that are not given."""
    parser.add_argument("--model", default="", help="name of the model (default: the only one that is served)")
    parser.add_argument("--system", default="", metavar="TEXT", help="system message before the prompt")
    parser.add_argument("--max-tokens", type=int, help="maximum output tokens (default: 128)")
    parser.add_argument("--temperature", type=float, help="sampling temperature, 0 is greedy (default: 0)")
    parser.add_argument("--top-k", type=int, help="sample among this many most likely tokens (default: all)")
    parser.add_argument(
        "--top-p", type=float, help="sample among the most likely tokens with this total probability (default: 1)"
    )
    parser.add_argument("--seed", type=int, help="equal seeds give equal text (default: drawn by the gateway)")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="stop before this text; repeatable")


def call_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the model and the given sampling options as the SDK's call takes them."""
    given = {name: getattr(args, name) for name in SAMPLING}
    return {"model": args.model, **{name: value for name, value in given.items() if value is not None}}


def gateway(args: argparse.Namespace) -> str:
    """Return the address of the gateway to call."""
    running = endpoint.read()
    return args.gateway or (running.gateway if running else DEFAULT_GATEWAY)

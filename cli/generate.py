"""`fairlead generate`: answer a prompt, with streaming output."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cli.patience import NO_RETRIES, patiently
from cli.target import add_gateway_options, add_sampling_options, call_options, gateway
from fairlead import Chunk, Completion, SyncClient
from fairlead.errors import InvalidRequest

STDIN = "-"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("generate", help="send one prompt and print the answer")
    parser.add_argument(
        "prompt",
        nargs="?",
        help=f"the prompt; {STDIN} reads standard input, as does no prompt if standard input is no terminal",
    )
    parser.add_argument("--raw", action="store_true", help="continue the given prompt without the chat template")
    parser.add_argument("--json", action="store_true", help="print one JSON object: text, usage, timings, ids")
    add_gateway_options(parser)
    add_sampling_options(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer as it arrives, or at its end as JSON."""
    prompt, options, address = _prompt(args), call_options(args), gateway(args)
    messages = [("system", args.system)] * bool(args.system) + [("user", prompt)]
    with SyncClient(address, api_key=args.api_key, user=args.user, app=args.app, retries=NO_RETRIES) as client:

        def chunks() -> Iterator[Chunk]:
            return client.stream(prompt, **options) if args.raw else client.stream_chat(messages, **options)

        def whole() -> Iterator[Completion]:
            yield client.generate(prompt, **options) if args.raw else client.chat(messages, **options)

        if args.json:
            for completion in patiently(address, whole):
                print(json.dumps(_fields(completion)))
        else:
            for chunk in patiently(address, chunks):
                print(chunk.text, end="", flush=True)
            print()
    return 0


def _prompt(args: argparse.Namespace) -> str:
    if args.raw and args.system:
        args.parser.error("--system needs the chat template: leave out --raw")
    text: str | None = args.prompt
    if text is None and sys.stdin.isatty():
        args.parser.error("the following arguments are required: prompt")
    if text is None or text == STDIN:
        text = sys.stdin.read().removesuffix("\n")
    if not text:
        raise InvalidRequest("must not be empty", "prompt")
    return text


def _fields(completion: Completion) -> dict[str, Any]:
    timings = completion.timings
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason.name.lower(),
        "usage": asdict(completion.usage),
        "seconds": {"first_token": timings.time_to_first_token, "total": timings.duration},
        "timings": asdict(timings),
        "request_id": completion.request_id,
        "model": completion.model,
        "worker": completion.worker,
        "token_ids": list(completion.token_ids),
    }

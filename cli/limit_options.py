"""Options for the rate limits of a simulated throttle. A limit is accepted only if the throttle uses it."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.errors import InvalidRequest

NAMES = {"user_per_minute": "T_user", "app_per_minute": "T_app"}
READ_BY = {
    "oit": ("user_per_minute", "app_per_minute"),
    "rpm": ("user_per_minute", "app_per_minute"),
    "sliding-rpm": ("user_per_minute",),
    "none": (),
}


def add_limit_options(
    parser: argparse.ArgumentParser, kind: Callable[[str], object], defaults: Mapping[str, str]
) -> None:
    """Add an option per limit: `kind` converts its text, and `defaults` are shown in the help."""
    for name, symbol in NAMES.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(
            option, type=kind, help=f"limit {symbol} of --throttle, calls per minute (default: {defaults[name]})"
        )


def given_limits(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given limits by name; raises InvalidRequest when the throttle does not use one of them."""
    given = {name: getattr(args, name) for name in NAMES if getattr(args, name) is not None}
    for name, value in given.items():
        if name not in READ_BY[args.throttle]:
            readers = ", ".join(throttle for throttle, names in READ_BY.items() if name in names)
            option = "--" + name.replace("_", "-")
            raise InvalidRequest(f"--throttle {args.throttle} does not use it, only {readers}; got {value}", option)
    return given

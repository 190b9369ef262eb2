"""`fairlead top`: a live view of users and workers."""

import argparse
import itertools
import sys
import time
from dataclasses import dataclass

from cli import admin
from cli.frame import frame
from cli.option_types import above_zero, whole
from cli.screen import Line, Screen, Style
from cli.table import cut
from fairlead.errors import DeadlineExceeded, FairleadError, Retryable
from fairlead.v1 import scheduler_pb2


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("top", help="live view of users, balances, workers, queues and caches")
    admin.add_options(parser)
    admin.add_gateways(parser)
    parser.add_argument(
        "--every",
        type=above_zero,
        default=1.0,
        metavar="SECONDS",
        help="refresh period in seconds (default: %(default)s)",
    )
    parser.add_argument("--frames", type=whole, help="number of frames to show (default: until Ctrl-C)")
    parser.add_argument(
        "--users",
        type=whole,
        default=20,
        help="maximum number of users shown, the most active first (default: %(default)s)",
    )
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class StatusSample:
    """A status and the time at which it was received, in monotonic seconds.

    Gateways have told of `predictions` of waits, of which `close` were right.
    """

    status: scheduler_pb2.StatusResponse
    at: float
    predictions: int
    close: int


def run(args: argparse.Namespace) -> int:
    """Show a frame per period until Ctrl-C; raises a FairleadError when the first request fails."""
    try:
        with admin.schedulers(args) as schedulers:
            latest = earlier = _sample(args, schedulers)
            with Screen(sys.stdout) as screen:
                failure: list[Line] = []
                for number in itertools.count(1):
                    seconds = latest.at - earlier.at
                    lines = frame(latest.status, earlier.status, seconds, args.users, screen.width)
                    screen.show([*failure, *lines, *predictions(latest, earlier, screen.width)])
                    if number == args.frames:
                        break
                    time.sleep(args.every)
                    try:
                        earlier, latest, failure = latest, _sample(args, schedulers), []
                    except (Retryable, DeadlineExceeded) as error:
                        failure = [_failure(error, time.monotonic() - latest.at, screen.width)]
    except KeyboardInterrupt:
        pass
    return 0


def _sample(args: argparse.Namespace, schedulers: admin.SchedulerClients) -> StatusSample:
    _, status = schedulers.leader()
    accounts = admin.accounts(args)
    predicted = sum(account.predictions for account in accounts)
    close = sum(account.close_predictions for account in accounts)
    return StatusSample(status, time.monotonic(), predicted, close)


def predictions(latest: StatusSample, earlier: StatusSample, width: int) -> list[Line]:
    """Return a line with the predictions of waits that were right, of all and of those since the `earlier` sample."""
    if not latest.predictions:
        return []
    text = f"predicted waits: {latest.close / latest.predictions:.0%} of {latest.predictions:,} within 25 % or 200 ms"
    if new := latest.predictions - earlier.predictions:
        text += f"; now {(latest.close - earlier.close) / new:.0%} of {new:,}"
    return [("", Style.PLAIN), (cut(text, width), Style.PLAIN)]


def _failure(error: FairleadError, seconds: float, width: int) -> Line:
    return cut(f"no answer for {seconds:.0f} s: {error}", width), Style.RED

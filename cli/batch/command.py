"""`fairlead batch run`: answer a file of requests in OpenAI's batch format, in the background class.

The file of answers is the record: a run that was interrupted, however that happened, goes on where it stopped.
"""

import argparse
import os
import sys
from pathlib import Path

from cli.batch.answer_file import AnswerFile
from cli.batch.request_file import RequestFile
from cli.batch.runner import BatchRunner
from cli.progress import Progress

DEFAULT_URL = "http://127.0.0.1:8000"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    batch = commands.add_parser("batch", help="answer a file of requests while nobody else wants the machine")
    parser = batch.add_subparsers(metavar="ACTION", required=True).add_parser(
        "run", help="send the requests of a file, and append the answers to another"
    )
    parser.add_argument("requests", type=Path, help="JSON lines in OpenAI's batch format")
    parser.add_argument("--out", type=Path, required=True, help="file of answers; those that it has are not asked for")
    parser.add_argument("--url", default=DEFAULT_URL, help="the gateway's HTTP address (default: %(default)s)")
    parser.add_argument(
        "--api-key", default=os.environ.get("FAIRLEAD_API_KEY", ""), help="API key (default: FAIRLEAD_API_KEY)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer what is not answered yet; return 1 if an answer of this run is an error.

    Raise InvalidRequest for a file that is not in the format, before anything is sent, and Unavailable if the gateway
    stays away.
    """
    requests = RequestFile(args.requests)
    total = requests.check()
    with AnswerFile(args.out) as answers, Progress(sys.stderr) as progress:
        runner = BatchRunner(args.url, args.api_key, answers, progress, total)
        runner.run(requests)
    return 1 if runner.failed else 0

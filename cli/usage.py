"""`fairlead usage`: what calls used, by day, tenant, user, app and model."""

import argparse
import json
import shutil

from cli import admin, endpoint
from cli.table import Column, table
from fairlead.errors import InvalidRequest
from fairlead.v1 import throttling_pb2, throttling_pb2_grpc
from serving.rpc.channel import secret_metadata
from serving.usage_report import COLUMNS, KEYS, Cell, UsageRow, as_csv, usage_report

SECONDS = 30.0  # for the whole answer
NO_TERMINAL = 120, 24  # columns and lines
WIDTHS = {"day": 10, "tenant": 16, "user": 16, "app": 12, "model": 20}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("usage", help="show what tenants, users, apps and models used on each day")
    admin.add_secret(parser)
    admin.add_gateways(parser)
    parser.add_argument("--since", default="", metavar="DAY", help="first day of UTC, as 2026-11-26 (default: all)")
    parser.add_argument("--by", default="day,tenant", help=f"any of {','.join(KEYS)} (default: %(default)s)")
    parser.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="of the output (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the sums over all gateways; raises a FairleadError when one does not answer."""
    by = args.by.split(",")
    if unknown := [name for name in by if name not in KEYS]:
        raise InvalidRequest(f"--by: must be of {', '.join(KEYS)}, got {unknown[0]!r}")
    running = endpoint.read()
    gateways = args.gateway or ([running.gateway] if running else ["127.0.0.1:7000"])
    # Gateways of one machine may share a ledger.
    ledgers = dict(_usage(gateway, admin.secret(args), args.since) for gateway in gateways)
    report = usage_report([row for rows in ledgers.values() for row in rows], by)
    match args.format:
        case "csv":
            print(as_csv(report, by), end="")
        case "json":
            print(json.dumps(report, indent=1))
        case _:
            columns = [Column(name, WIDTHS[name], lambda row, name=name: str(row[name]), is_text=True) for name in by]  # type: ignore[misc]
            columns += [Column(name, len(name), lambda row, name=name: _shown(row[name])) for name in COLUMNS]  # type: ignore[misc]
            print("\n".join(table(columns, report, shutil.get_terminal_size(NO_TERMINAL).columns)))
    return 0


def _usage(gateway: str, secret: str, since: str) -> tuple[str, list[UsageRow]]:
    """Return the name of the gateway's ledger and its rows."""
    with admin.gateway_channel(gateway) as channel:
        request, metadata = throttling_pb2.UsageRequest(since=since), secret_metadata(secret)
        stub = throttling_pb2_grpc.ThrottlingStub(channel)
        answers = list(stub.Usage(request, metadata=metadata, timeout=SECONDS))
    rows = [UsageRow(*(getattr(row, name) for name in UsageRow._fields)) for answer in answers for row in answer.rows]
    return answers[0].ledger, rows


def _shown(value: Cell) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value

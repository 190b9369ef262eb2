"""Client for the admin calls of the global scheduler that leads, and the options of operators' commands."""

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from cli import endpoint
from fairlead.address import gateway_target
from fairlead.errors import FairleadError, InvalidRequest, Unavailable
from fairlead.rpc.connecting import unreachable
from fairlead.rpc.status import from_call
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc, throttling_pb2, throttling_pb2_grpc
from serving.rpc.channel import open_sync_channel, secret_metadata
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls

TIMEOUT_SECONDS = 5.0


class Admin:
    """The admin service of one scheduler; its calls raise a FairleadError."""

    def __init__(self, address: str, channel: grpc.Channel, secret: str) -> None:
        self._address = address
        self._stub = scheduler_pb2_grpc.AdminStub(channel)
        self._metadata = secret_metadata(secret)

    def status(self) -> scheduler_pb2.StatusResponse:
        """Return the scheduler's view of the cluster."""
        status: scheduler_pb2.StatusResponse = self._call(self._stub.Status, scheduler_pb2.StatusRequest())
        return status

    def drain(self, worker: str) -> None:
        self._call(self._stub.DrainWorker, scheduler_pb2.DrainWorkerRequest(worker=worker))

    def flush(self, worker: str) -> None:
        """Request that a worker empties its prefix cache."""
        self._call(self._stub.FlushWorker, scheduler_pb2.FlushWorkerRequest(worker=worker))

    def _call(self, method: Callable[..., Any], request: Message) -> Any:
        with reaching(self._address):
            return method(request, metadata=self._metadata, timeout=TIMEOUT_SECONDS)


@contextlib.contextmanager
def reaching(address: str) -> Iterator[None]:
    """Raise a FairleadError for a call to `address` that fails within the context."""
    try:
        yield
    except grpc.RpcError as error:
        raise unreachable(error, address) or from_call(error) from error


@contextlib.contextmanager
def gateway_channel(address: str) -> Iterator[grpc.Channel]:
    """Connect to the gateway at `address`; raise a FairleadError for a call that fails within the context."""
    with open_sync_channel(gateway_target(address)) as channel, reaching(address):
        yield channel


def accounts(args: argparse.Namespace) -> list[throttling_pb2.AccountResponse]:
    """Return what each gateway has counted that `--gateway` names, or that of the running stack where no `--scheduler`
    is named; raises a FairleadError."""
    running = endpoint.read()
    gateways = args.gateway or ([running.gateway] if running and not args.scheduler else [])
    return [account(address, secret(args)) for address in gateways]


def account(gateway: str, secret: str) -> throttling_pb2.AccountResponse:
    """Return the interactions' outcomes that the gateway at this address has counted; raises a FairleadError."""
    with gateway_channel(gateway) as channel:
        stub = throttling_pb2_grpc.ThrottlingStub(channel)
        response: throttling_pb2.AccountResponse = stub.Account(
            throttling_pb2.AccountRequest(), metadata=secret_metadata(secret), timeout=TIMEOUT_SECONDS
        )
    return response


def mutual_tls() -> MutualTls | None:
    """Load the mutual TLS credentials for schedulers that require them, or return None.

    It comes from the same environment variable that the services read. Raises ConfigError.
    """
    return load_mutual_tls(os.environ.get("FAIRLEAD_INTERNAL_TLS", ""))


def add_secret(parser: argparse.ArgumentParser) -> None:
    """Add the option `--secret`, which every operators' command has."""
    parser.add_argument(
        "--secret",
        default=os.environ.get("FAIRLEAD_ADMIN_SECRET") or os.environ.get("FAIRLEAD_SECRET"),
        help="the admin secret (default: FAIRLEAD_ADMIN_SECRET, or else FAIRLEAD_SECRET)",
    )


def secret(args: argparse.Namespace) -> str:
    """Return the secret that operators' calls carry; raise InvalidRequest for one that no call can carry."""
    running = endpoint.read()
    found: str = args.secret or (running.secret if running else "")
    if not (found.isascii() and found.isprintable()):
        raise InvalidRequest("must be printable ASCII", "--secret")  # the message must not repeat it
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the cluster."""
    parser.add_argument(
        "--scheduler", help="address, or several: host:port,host:port (default: the stack of `fairlead up`)"
    )
    add_secret(parser)


def add_gateways(parser: argparse.ArgumentParser) -> None:
    """Add the option that names gateways."""
    parser.add_argument(
        "--gateway", action="append", default=[], help="address, repeatable (default: the stack of `fairlead up`)"
    )


class SchedulerClients:
    """Clients of the schedulers of a cluster, one of which leads. Their channels stay open and reconnect
    automatically."""

    def __init__(self, admins: list[Admin], given: str) -> None:
        self._admins = admins
        self._given = given

    def leader(self) -> tuple[Admin, scheduler_pb2.StatusResponse]:
        """Return the scheduler that leads, with its status.

        Raises the last scheduler's error, or Unavailable when all answer and none leads.
        """
        last: FairleadError = Unavailable(f"none of the schedulers {self._given} leads")
        for admin in self._admins:
            try:
                status = admin.status()
            except FairleadError as error:
                last = error
                continue
            if status.cluster.epoch:
                return admin, status
        raise last


@contextlib.contextmanager
def schedulers(args: argparse.Namespace) -> Iterator[SchedulerClients]:
    """Connect to the schedulers that `--scheduler` names, or to that of the running stack."""
    running = endpoint.read()
    given = args.scheduler or (running.scheduler if running else "127.0.0.1:7050")
    with contextlib.ExitStack() as stack:
        admins = [
            Admin(address, stack.enter_context(open_sync_channel(address, mutual_tls())), secret(args))
            for address in map(str.strip, given.split(","))
        ]
        yield SchedulerClients(admins, given)


@contextlib.contextmanager
def leader(args: argparse.Namespace) -> Iterator[tuple[Admin, scheduler_pb2.StatusResponse]]:
    """Connect to the scheduler that leads, with its status; raises as SchedulerClients.leader does."""
    with schedulers(args) as found:
        yield found.leader()

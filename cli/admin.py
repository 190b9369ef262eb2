"""The operator's way to the global scheduler that leads."""

import argparse
import contextlib
import os
from collections.abc import Iterator

import grpc

from cli import endpoint
from fairlead.errors import FairleadError, Unavailable
from fairlead.rpc.status import from_call
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc, throttling_pb2, throttling_pb2_grpc
from serving.rpc.channel import open_sync_channel, secret_metadata
from serving.rpc.mutual_tls import MutualTls, load_mutual_tls

TIMEOUT_SECONDS = 5.0


class Admin:
    """One scheduler's admin service; its calls raise a FairleadError."""

    def __init__(self, channel: grpc.Channel, secret: str) -> None:
        self._stub = scheduler_pb2_grpc.AdminStub(channel)
        self._metadata = secret_metadata(secret)

    def status(self) -> scheduler_pb2.StatusResponse:
        """What the scheduler knows."""
        try:
            request = scheduler_pb2.StatusRequest()
            status: scheduler_pb2.StatusResponse = self._stub.Status(
                request, metadata=self._metadata, timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            raise from_call(error) from error
        return status

    def drain(self, worker: str) -> None:
        """Ask a worker to leave."""
        try:
            request = scheduler_pb2.DrainWorkerRequest(worker=worker)
            self._stub.DrainWorker(request, metadata=self._metadata, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise from_call(error) from error

    def flush(self, worker: str) -> None:
        """Ask a worker to empty its prefix cache."""
        try:
            request = scheduler_pb2.FlushWorkerRequest(worker=worker)
            self._stub.FlushWorker(request, metadata=self._metadata, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise from_call(error) from error


def account(gateway: str, secret: str) -> throttling_pb2.AccountResponse:
    """What became of interactions at the gateway at this address; raises a FairleadError."""
    with open_sync_channel(gateway) as channel:
        stub = throttling_pb2_grpc.ThrottlingStub(channel)
        try:
            response: throttling_pb2.AccountResponse = stub.Account(
                throttling_pb2.AccountRequest(), metadata=secret_metadata(secret), timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            raise from_call(error) from error
    return response


def mutual_tls() -> MutualTls | None:
    """What schedulers with mutual TLS ask for, from the variables that they read themselves; raises ConfigError."""
    parts = ("CERTIFICATE", "KEY", "AUTHORITY")
    return load_mutual_tls(*(os.environ.get(f"FAIRLEAD_INTERNAL_{part}", "") for part in parts))


def add_secret(parser: argparse.ArgumentParser) -> None:
    """What every operator's command needs."""
    parser.add_argument(
        "--secret",
        default=os.environ.get("FAIRLEAD_ADMIN_SECRET") or os.environ.get("FAIRLEAD_SECRET"),
        help="the admin secret; or FAIRLEAD_ADMIN_SECRET, or FAIRLEAD_SECRET",
    )


def secret(args: argparse.Namespace) -> str:
    """What operators' calls carry."""
    running = endpoint.read()
    return args.secret or (running.secret if running else "")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which cluster."""
    parser.add_argument(
        "--scheduler", help="address, or several: host:port,host:port (default: the stack that `fairlead up` runs)"
    )
    add_secret(parser)


class SchedulerClients:
    """A cluster's, of which one leads. The channels to them stay open, and connect again by themselves."""

    def __init__(self, admins: list[Admin], given: str) -> None:
        self._admins = admins
        self._given = given

    def leader(self) -> tuple[Admin, scheduler_pb2.StatusResponse]:
        """The one that leads, with its status; raises what the last one raised, or Unavailable when none leads."""
        failure: FairleadError = Unavailable(f"none of the schedulers {self._given} leads")
        for admin in self._admins:
            try:
                status = admin.status()
            except FairleadError as error:
                failure = error
                continue
            if status.cluster.epoch:
                return admin, status
        raise failure


@contextlib.contextmanager
def schedulers(args: argparse.Namespace) -> Iterator[SchedulerClients]:
    """Those that `--scheduler` names, or the running stack's."""
    running = endpoint.read()
    given = args.scheduler or (running.scheduler if running else "127.0.0.1:7050")
    with contextlib.ExitStack() as stack:
        channels = [
            stack.enter_context(open_sync_channel(address.strip(), mutual_tls())) for address in given.split(",")
        ]
        yield SchedulerClients([Admin(channel, secret(args)) for channel in channels], given)


@contextlib.contextmanager
def leader(args: argparse.Namespace) -> Iterator[tuple[Admin, scheduler_pb2.StatusResponse]]:
    """The scheduler that leads, with its status; raises as Schedulers.leader does."""
    with schedulers(args) as found:
        yield found.leader()

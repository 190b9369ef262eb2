"""One attached worker: its public view, and the commands that it is sent."""

import asyncio
from collections.abc import AsyncIterator

from fairlead.v1 import scheduler_pb2
from global_scheduler.core.fleet import Member


class WorkerAttachment:
    """One Attach stream of a worker; `commands` is the stream's only writer."""

    def __init__(self, hello: scheduler_pb2.Hello, member: Member) -> None:
        self.member = member
        self.worker = hello.worker  # its name
        models = hello.models
        self._described = scheduler_pb2.Member(
            worker=hello.worker, instance=hello.instance, address=hello.address, model=models[0], models=models
        )
        self._leaving = False
        self.load = scheduler_pb2.Load()
        self.view = self._view()  # for gateways; replaced, and never changed
        self._commands: asyncio.Queue[scheduler_pb2.WorkerCommand | None] = asyncio.Queue()
        self._commands.put_nowait(scheduler_pb2.WorkerCommand(attached=scheduler_pb2.Attached()))

    def loaded(self, load: scheduler_pb2.Load) -> None:
        """Replace the load by the latest report, without the services per client, which ClientServiceTable keeps."""
        load.ClearField("services")
        load.draining |= self._leaving
        self.load = load
        if load.draining != self.view.load.draining:
            self.view = self._view()

    def status(self) -> scheduler_pb2.Member:
        """Return the worker with its load, for operators."""
        member = scheduler_pb2.Member(load=self.load)
        member.MergeFrom(self._described)
        return member

    def _view(self) -> scheduler_pb2.Member:
        view = scheduler_pb2.Member(load=scheduler_pb2.Load(draining=self.load.draining))
        view.MergeFrom(self._described)
        return view

    def drain(self) -> None:
        """Send the worker the drain command, and show it as draining from now on, whatever it still reports."""
        self._leaving = self.load.draining = True
        self.view = self._view()
        self._commands.put_nowait(scheduler_pb2.WorkerCommand(drain=scheduler_pb2.DrainCommand()))

    def flush(self) -> None:
        """Send the worker the command to empty its prefix cache."""
        self._commands.put_nowait(scheduler_pb2.WorkerCommand(flush=scheduler_pb2.FlushCommand()))

    def close(self) -> None:
        """End the stream after the commands already queued; a live worker attaches again."""
        self._commands.put_nowait(None)

    async def commands(self) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        """Yield the commands for the worker until `close` is called."""
        while (command := await self._commands.get()) is not None:
            yield command

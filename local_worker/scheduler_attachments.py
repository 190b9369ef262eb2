"""The worker's streams to all schedulers, and to the endpoint pickers behind names, one for each address."""

import asyncio
from collections.abc import Callable, Sequence

from local_worker.attachment import SchedulerAttachment
from local_worker.core.events import WorkerUpdate
from serving.endpoint_names import EndpointNames


class SchedulerAttachments:
    """An attachment to each of `schedulers`, and to each address that `pickers` have, as these come and go."""

    def __init__(
        self,
        attach: Callable[[str], SchedulerAttachment],
        schedulers: Sequence[str],
        pickers: EndpointNames | None = None,
    ) -> None:
        self._attach = attach
        self._named = [attach(address) for address in schedulers]
        self._attachments = self._named
        self._pickers = pickers
        self._found: dict[str, tuple[SchedulerAttachment, asyncio.Task[None]]] = {}  # by a picker's address

    def deliver(self, update: WorkerUpdate) -> None:
        """Queue the events of one turn of the engine loop for each; see SchedulerAttachment."""
        for attachment in self._attachments:
            attachment.deliver(update)

    def report_at_once(self) -> None:
        """Report the load to each now, because the worker begins to drain."""
        for attachment in self._attachments:
            attachment.report_at_once()

    async def run(self) -> None:
        """Attach and report until cancelled; a mistake is raised in an ExceptionGroup."""
        async with asyncio.TaskGroup() as tasks:
            for attachment in self._named:
                tasks.create_task(attachment.run())

            async def changed(addresses: list[str]) -> None:
                for address in [address for address in self._found if address not in addresses]:
                    _, task = self._found.pop(address)
                    task.cancel()
                for address in addresses:
                    if address not in self._found:
                        attachment = self._attach(address)
                        self._found[address] = attachment, tasks.create_task(attachment.run())
                self._attachments = [*self._named, *[attachment for attachment, _ in self._found.values()]]

            if self._pickers is not None:
                await changed(self._pickers.endpoints)
                await self._pickers.follow(changed)

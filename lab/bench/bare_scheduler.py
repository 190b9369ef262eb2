"""A scheduler that reads the reports of workers and does nothing with them: what grpc.aio alone costs.

`python -m lab.bench.bare_scheduler` serves on a free port until SIGTERM, and logs the port as the services do. Reports
are not even parsed. `lab.bench.standing --bare` measures it.
"""

import json
import sys

import grpc
import uvloop

from fairlead.v1 import scheduler_pb2
from lab.bench.standing import COUNT
from serving.rpc.channel import SERVER_OPTIONS


class BareScheduler:
    """The methods that a fleet and the benchmark need."""

    def __init__(self) -> None:
        self._attached = 0
        self._reports = 0

    async def attach(self, _: object, context: grpc.aio.ServicerContext) -> None:
        """Read the reports of one worker until it leaves."""
        self._attached += 1
        try:
            while await context.read() is not grpc.aio.EOF:
                self._reports += 1
        finally:
            self._attached -= 1

    async def status(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Return as many nameless members as workers are attached."""
        members = [scheduler_pb2.Member()] * self._attached
        state = scheduler_pb2.ClusterState(members=members)
        return scheduler_pb2.StatusResponse(cluster=state).SerializeToString()

    async def count(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Return the number of reports so far."""
        return str(self._reports).encode()


async def serve() -> None:
    """Serve until the process is ended."""
    bare = BareScheduler()
    methods = {
        "fairlead.v1.Scheduler": {"Attach": grpc.stream_stream_rpc_method_handler(bare.attach)},
        "fairlead.v1.Admin": {"Status": grpc.unary_unary_rpc_method_handler(bare.status)},
        COUNT.split("/")[1]: {COUNT.split("/")[2]: grpc.unary_unary_rpc_method_handler(bare.count)},
    }
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, handlers) for service, handlers in methods.items())
    )
    port = server.add_insecure_port("0.0.0.0:0")
    await server.start()
    print(json.dumps({"message": "listening", "port": port}), file=sys.stderr, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve())

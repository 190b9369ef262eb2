"""`fairlead trace ID`: the timeline of one interaction."""

import argparse

from cli import admin, endpoint
from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import traces_pb2, traces_pb2_grpc
from serving.rpc.channel import secret_metadata

BAR = 40  # characters of the timeline


class NotRemembered(FairleadError):
    """The error for an id that no queried gateway has in its memory, or no longer has."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("trace", help="show the timeline of a recent interaction")
    parser.add_argument("id", help="id of an interaction or of a request (the gateway's or the caller's own)")
    parser.add_argument(
        "--gateway", action="append", help="address, repeatable: each gateway stores the calls that it served"
    )
    admin.add_secret(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a timeline per trace; raises NotRemembered, or the FairleadError of a gateway that does not answer."""
    running = endpoint.read()
    addresses = args.gateway or [running.gateway if running else "127.0.0.1:7000"]
    calls = [call for address in addresses for call in _find(address, admin.secret(args), args.id)]
    if not calls:
        raise NotRemembered(f"no gateway remembers {args.id}")
    print("\n\n".join("\n".join(timeline(trace)) for trace in traces(calls)))
    return 0


def traces(calls: list[traces_pb2.TracedCall]) -> list[list[traces_pb2.TracedCall]]:
    """Group the calls by interaction, in order of arrival; a call without an interaction is alone.

    Calls of different clients with equal ids are kept apart.
    """
    together: dict[tuple[str, str, str], list[traces_pb2.TracedCall]] = {}
    for call in sorted(calls, key=lambda call: call.received):
        together.setdefault((call.client, call.app, call.interaction or call.request_id), []).append(call)
    return list(together.values())


def timeline(calls: list[traces_pb2.TracedCall]) -> list[str]:
    """Return the lines of a timeline for at least one call, in order of arrival."""
    began, ended = calls[0].received, max(call.finished for call in calls)
    first = calls[0]
    what = f"interaction {first.interaction}" if first.interaction else f"request {first.request_id}"
    app = f"{first.app} ({first.named_app!r} is unknown)" if first.named_app else first.app
    lines = [f"{what}: client {first.client}, app {app}, {len(calls)} calls, {_ms(began, ended)}"]
    for call in calls:
        lines += ["", *_call(call, began, ended)]
    return lines


def _call(call: traces_pb2.TracedCall, began: int, ended: int) -> list[str]:
    usage = call.usage
    reason = f" ({FinishReason(call.finish_reason).name.lower()})" if call.finish_reason else ""
    facts = [
        f"stage {call.stage}",
        f"{Outcome(call.outcome).name}{reason}",
        f"worker {call.worker or '-'}",
        f"policy {call.policy or '-'}",
        f"{usage.prompt_tokens} in ({usage.cached_tokens} cached, {call.matched_tokens} expected)",
        f"{usage.output_tokens} out",
        f"service {usage.service:,.0f}",
        f"{call.retries} retries",
        *([f"caller's id {call.caller_request_id}"] if call.caller_request_id else []),
    ]
    row = "  {:<8} {:>12}  {}  {}"
    return [
        f"{call.request_id}  +{_ms(began, call.received)}  {', '.join(facts)}",
        *(row.format(p.name, _ms(p.start, p.end), _bar(p, began, ended), p.service) for p in call.phases),
        row.format("total", _ms(call.received, call.finished), "", "").rstrip(),
    ]


def _bar(phase: traces_pb2.Phase, began: int, ended: int) -> str:
    whole = max(1, ended - began)
    start, stop = (round((time - began) * BAR / whole) for time in (phase.start, phase.end))
    return ("." * start + "#" * (stop - start)).ljust(BAR, ".")


def _ms(start: int, end: int) -> str:
    return f"{(end - start) / 1e6:,.2f} ms"


def _find(address: str, secret: str, name: str) -> list[traces_pb2.TracedCall]:
    with admin.gateway_channel(address) as channel:
        stub = traces_pb2_grpc.TracesStub(channel)
        request, metadata = traces_pb2.FindTraceRequest(id=name), secret_metadata(secret)
        return list(stub.FindTrace(request, metadata=metadata, timeout=admin.TIMEOUT_SECONDS).calls)
